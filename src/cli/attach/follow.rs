//! Results of a batch of the daemon's, each written once, over as many connections as it takes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use serde::Deserialize;
use tokio::{sync::watch, time::Instant};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::{latest, real, shown::Shown, stopping::Stopping};
use crate::{
    app::batch::Results,
    cli::{
        Exit,
        asking::{Patience, WINDOW, patiently},
        render::{counted, one_line},
    },
    daemon::{
        client::{Client, ClientError, Lines, Route},
        wire::{BatchState, BatchView},
    },
    domain::outcome::Outcome,
};

/// How often the daemon is asked how far the batch is.
const INTERVAL: Duration = Duration::from_millis(500);

/// A connection that lasted for so long shows that the daemon was there.
const STEADY: Duration = Duration::from_secs(1);

/// How a connection ended.
enum Pass {
    /// There are no more results.
    Over,
    Broken(ClientError),
}

/// A batch as it was asked for here.
pub(super) struct Batch {
    pub(super) id: String,
    pub(super) name: String,
    /// The ids of the input's tasks, in its order.
    pub(super) tasks: Vec<Arc<str>>,
    /// The places of those that are to run.
    pub(super) chosen: Vec<usize>,
    pub(super) out: Option<PathBuf>,
    pub(super) keep_order: bool,
    pub(super) with_messages: bool,
}

/// What has to be known of a result to put it in its place.
#[derive(Deserialize)]
pub(super) struct ResultHead {
    id: String,
    run: Uuid,
    #[serde(flatten)]
    outcome: Outcome,
}

impl ResultHead {
    pub(super) fn of(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// The id of the task.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

/// Why the watching came to its end before the batch.
enum Left {
    Stopped,
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Left {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Watches a batch.
pub(super) struct Attached {
    client: Client,
    batch: Batch,
    shown: Shown,
    stopping: Stopping,
    places: BTreeMap<Arc<str>, usize>,
    chosen: BTreeSet<usize>,
    /// The runs whose results were taken, by their tasks' places: a new connection tells them all again.
    taken: BTreeMap<usize, Uuid>,
    /// Whether a task was given another attempt after its result was taken.
    came_again: bool,
    /// The chosen tasks that have ended.
    ended: BTreeMap<usize, Outcome>,
}

impl Attached {
    pub(super) fn new(client: Client, batch: Batch, shown: Shown, stopping: Stopping) -> Self {
        let places = batch.tasks.iter().cloned().zip(0..).collect();
        let chosen = batch.chosen.iter().copied().collect();
        let (taken, ended) = (BTreeMap::new(), BTreeMap::new());
        Self { client, batch, shown, stopping, places, chosen, taken, came_again: false, ended }
    }

    /// Writes every result until the batch has ended or somebody has seen enough.
    pub(super) async fn watch(mut self) -> anyhow::Result<Exit> {
        let stopper = self.stopping.stopper();
        let (told, view) = watch::channel(None);
        let _asking = AbortOnDropHandle::new(tokio::spawn(ask(self.client.clone(), self.route(), told)));
        let record = tokio::select! {
            record = self.record() => record?,
            () = stopper.stopped_now() => return Ok(self.detached().await),
        };
        let mut results = self.rebuild(record).await?;
        match self.follow(&mut results, view).await {
            Ok(view) => {
                self.finish(results).await?;
                Ok(self.ended(&view))
            }
            Err(Left::Stopped) => {
                self.finish(results).await?;
                Ok(self.detached().await)
            }
            Err(Left::Failed(error)) => Err(error),
        }
    }

    /// Sees to it that all is written, and that a file has one line of each task. Who reads the standard output has had
    /// the line of an attempt before, and gets that of the next one after it.
    async fn finish(&self, results: Results) -> anyhow::Result<()> {
        results.finish().await?;
        match &self.batch.out {
            Some(out) if self.came_again => latest::keep(out, &self.places, self.batch.keep_order),
            Some(_) | None => Ok(()),
        }
    }

    fn route(&self) -> Route {
        Route::to(["v1", "batches", &self.batch.id])
    }

    async fn lines(&self, follow: bool) -> Result<Lines, ClientError> {
        let route = Route::to(["v1", "batches", &self.batch.id, "results"])
            .with_some("follow", follow.then_some(true))
            .with_some("messages", self.batch.with_messages.then_some(true));
        self.client.lines(&route).await
    }

    /// The results that there are now.
    async fn record(&self) -> Result<Vec<Vec<u8>>, ClientError> {
        patiently(WINDOW, || async {
            let mut lines = self.lines(false).await?;
            let mut record = Vec::new();
            while let Some(line) = lines.next().await? {
                record.push(line.to_vec());
            }
            Ok(record)
        })
        .await
    }

    /// Makes OUT anew from them.
    async fn rebuild(&mut self, record: Vec<Vec<u8>>) -> anyhow::Result<Results> {
        let mut lines = Vec::with_capacity(record.len());
        for line in record {
            lines.extend(self.take(&line, Shown::settled));
        }
        let stdout = || Results::to_stdout(self.stopping.stopper());
        let there: BTreeSet<usize> =
            lines.iter().map(|(place, _)| *place).chain(self.chosen.iter().copied()).collect();
        let (results, rest) = match (&self.batch.out, self.batch.keep_order) {
            (Some(out), false) => {
                (Results::to_file(&real(out), lines.into_iter().map(|(_, line)| line))?, Vec::new())
            }
            (Some(out), true) => (Results::to_file(&real(out), [])?, lines),
            (None, _) => (stdout()?, lines),
        };
        let mut results =
            if self.batch.keep_order { results.in_order(there.into_iter().collect()) } else { results };
        for (place, line) in rest {
            results.write(place, line).await?;
        }
        Ok(results)
    }

    /// A result with its place; `show` is for the first one of a task that was asked for. Nothing, if it was taken before
    /// or its task is none of this input's.
    fn take(&mut self, line: &[u8], show: fn(&mut Shown, Outcome)) -> Option<(usize, Vec<u8>)> {
        let head = ResultHead::of(line)?;
        let place = *self.places.get(head.id.as_str())?;
        match self.taken.insert(place, head.run) {
            Some(run) if run == head.run => return None,
            Some(_) => self.came_again = true,
            None => {}
        }
        if self.chosen.contains(&place) {
            match self.ended.insert(place, head.outcome) {
                Some(before) => self.shown.ended_anew(before, head.outcome),
                None => show(&mut self.shown, head.outcome),
            }
        }
        let mut line = line.to_vec();
        line.push(b'\n');
        Some((place, line))
    }

    /// Writes results as they come, until the batch goes on no more.
    async fn follow(
        &mut self,
        results: &mut Results,
        mut view: watch::Receiver<Option<BatchView>>,
    ) -> Result<BatchView, Left> {
        let mut patience = Patience::new(WINDOW);
        loop {
            let since = Instant::now();
            let pass = match self.lines(true).await {
                Ok(mut lines) => self.pass(&mut lines, results, &mut view, &mut patience).await?,
                Err(error) => Pass::Broken(error),
            };
            let error = match (pass, self.client.get::<BatchView>(&self.route()).await) {
                (Pass::Over, Ok(view)) if !matches!(view.state, BatchState::Open | BatchState::Paused) => {
                    return Ok(view);
                }
                // There will be no more results, however often they are asked for.
                (Pass::Broken(_), Ok(view)) if view.state == BatchState::Broken => {
                    self.rest(results).await?;
                    return Ok(view);
                }
                // It ended the answer and not the batch: it is about to stop.
                (Pass::Over, Ok(_)) => ClientError::Lost { place: self.client.place().clone(), source: None },
                (Pass::Broken(error), _) | (Pass::Over, Err(error)) => error,
            };
            self.shown.away();
            // It may have had nothing to say for long, and been there all the time.
            if since.elapsed() > STEADY {
                patience.answered();
            }
            tokio::select! {
                waited = patience.after(error) => waited?,
                _ = self.stopping.stopped() => return Err(Left::Stopped),
            }
        }
    }

    /// Writes the results of one connection.
    async fn pass(
        &mut self,
        lines: &mut Lines,
        results: &mut Results,
        view: &mut watch::Receiver<Option<BatchView>>,
        patience: &mut Patience,
    ) -> Result<Pass, Left> {
        loop {
            let line = tokio::select! {
                line = lines.next() => match line {
                    Ok(Some(line)) => line,
                    Ok(None) => return Ok(Pass::Over),
                    Err(error) => return Ok(Pass::Broken(error)),
                },
                Ok(()) = view.changed() => {
                    if let Some(view) = &*view.borrow_and_update() {
                        self.shown.back();
                        self.shown.view(view);
                    }
                    continue;
                }
                _ = self.stopping.stopped() => return Err(Left::Stopped),
            };
            if let Some((place, line)) = self.take(line, Shown::ended) {
                patience.answered();
                self.shown.back();
                results.write(place, line).await?;
            }
        }
    }

    /// Writes what is of record and did not come over a connection that broke off, as far as it can be had.
    async fn rest(&mut self, results: &mut Results) -> Result<(), Left> {
        let Ok(mut lines) = self.lines(false).await else { return Ok(()) };
        while let Ok(Some(line)) = lines.next().await {
            if let Some((place, line)) = self.take(line, Shown::ended) {
                results.write(place, line).await?;
            }
        }
        Ok(())
    }

    fn unfinished(&self) -> usize {
        self.chosen.len() - self.ended.len()
    }

    fn ended(mut self, view: &BatchView) -> Exit {
        self.shown.view(view);
        let unfinished = self.unfinished();
        let why = match view.state {
            BatchState::Halted => "halted: ",
            BatchState::Cancelled => "cancelled: ",
            BatchState::Broken => "it cannot be worked on: ",
            BatchState::Open | BatchState::Paused | BatchState::Ended => "",
        };
        let words = match &view.error {
            Some(error) => Some(format!("{why}{}", one_line(error, 500))),
            None if unfinished > 0 && !self.shown.is_json() => {
                let tasks = counted(unfinished, "task");
                // To give the same command again only attaches to what has come to its end.
                let how = match view.state {
                    BatchState::Halted | BatchState::Cancelled => {
                        "the same command with --retry-failed goes on"
                    }
                    BatchState::Open | BatchState::Paused | BatchState::Ended | BatchState::Broken => {
                        "the same command continues"
                    }
                };
                Some(format!("{why}{tasks} not finished; {how}"))
            }
            None => None,
        };
        self.shown.finish(view, unfinished, words.as_deref());
        let is_done = unfinished == 0 && self.ended.values().all(|outcome| *outcome == Outcome::Done);
        match view.state {
            BatchState::Broken => Exit::NotDone,
            _state if is_done => Exit::Done,
            BatchState::Halted => Exit::Halted,
            BatchState::Open | BatchState::Paused | BatchState::Ended | BatchState::Cancelled => {
                Exit::NotDone
            }
        }
    }

    async fn detached(self) -> Exit {
        let Batch { id, name, .. } = &self.batch;
        let words = format!(
            "detached: batch {name} goes on; the same command attaches again; `herder cancel --batch {id}` ends it"
        );
        let unfinished = self.unfinished();
        self.shown.leave(unfinished, &words);
        self.stopping.stopped().await
    }
}

/// Asks from time to time how far the batch is. A daemon that does not answer is somebody else's to notice.
async fn ask(client: Client, route: Route, told: watch::Sender<Option<BatchView>>) {
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Ok(view) = client.get(&route).await
            && told.send(Some(view)).is_err()
        {
            return;
        }
    }
}
