//! Takes answers out of their folder and has them put on record.
//!
//! An answer leaves the folder once what became of it is of record, or never will be. Those to one run are told in the order in
//! which they came; what holds one run up holds up no other. What is wrong in the folder is told once.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    time::Duration,
};

use tokio::task::{JoinSet, spawn_blocking};

use super::{
    AnswerError, NameError, find,
    spool::{Come, Spool, Spooled, remove},
};
use crate::{
    actor::{Supervisor, supervisor::AskError},
    app::state::FindError,
    clock::Clock,
    domain::id::RunId,
    store::{EventStore, RunFilter, StoreError},
};

/// Between two looks at whether answers have come.
const PAUSE: Duration = Duration::from_millis(500);

/// What became of an answer that had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is of record, or never will be.
    Settled,
    /// Its run is not there yet, or the log takes or tells nothing.
    Waits,
}

impl Spool {
    /// Puts answers on record that have come while nobody was at work here; before anybody is. What is wrong with one concerns
    /// no other.
    pub async fn settle(&self, store: &dyn EventStore, clock: &dyn Clock) {
        let mut troubles = Troubles::default();
        for (path, answer) in self.look(&mut troubles).await {
            if settled(store, clock, answer).await == Fate::Settled {
                troubles.tell(taken_out(path).await);
            }
        }
    }

    /// Hands answers to their runs as they come, for as long as it is waited for.
    pub async fn serve(self, supervisor: Supervisor) {
        self.serve_by(move |answer| {
            let supervisor = supervisor.clone();
            async move { told(&supervisor, answer).await }
        })
        .await;
    }

    async fn serve_by<F>(self, tell: impl Fn(Spooled) -> F + Clone + Send + 'static)
    where
        F: Future<Output = Fate> + Send,
    {
        let mut troubles = Troubles::default();
        // By run, so that none is told a second answer before the first.
        let (mut at_work, mut tasks) = (BTreeSet::new(), JoinSet::new());
        let mut looks = tokio::time::interval(PAUSE);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => {
                    let mut by_run: BTreeMap<RunId, Vec<_>> = BTreeMap::new();
                    for one in self.look(&mut troubles).await {
                        by_run.entry(one.1.run).or_default().push(one);
                    }
                    for (run, answers) in by_run {
                        if at_work.insert(run) {
                            let tell = tell.clone();
                            tasks.spawn(async move { (run, tell_all(tell, answers).await) });
                        }
                    }
                }
                Some(done) = tasks.join_next() => {
                    // A panic has told of itself, and its run is left alone.
                    if let Ok((run, failed)) = done {
                        at_work.remove(&run);
                        failed.into_iter().for_each(|failed| troubles.tell(Err(failed)));
                    }
                }
            }
        }
    }

    async fn look(&self, troubles: &mut Troubles) -> Vec<(PathBuf, Spooled)> {
        let spool = self.clone();
        let Come { answers, unread } = spawn_blocking(move || spool.come()).await.unwrap_or_default();
        unread.into_iter().for_each(|trouble| troubles.tell(Err(trouble)));
        answers
    }
}

/// What is wrong in the folder, each told of once.
#[derive(Debug, Default)]
struct Troubles(BTreeSet<PathBuf>);

impl Troubles {
    fn tell(&mut self, done: Result<(), (PathBuf, io::Error)>) {
        if let Err((path, error)) = done
            && self.0.insert(path.clone())
        {
            tracing::warn!(%error, place = %path.display(), "an answer to an approval cannot be taken in");
        }
    }
}

async fn taken_out(path: PathBuf) -> Result<(), (PathBuf, io::Error)> {
    let removing = path.clone();
    let removed = spawn_blocking(move || remove(&removing)).await;
    removed.unwrap_or_else(|panic| Err(panic.into())).map_err(|error| (path, error))
}

async fn settled(store: &dyn EventStore, clock: &dyn Clock, answer: Spooled) -> Fate {
    let (name, (answer, given)) = (answer.name(), answer.into_answer());
    let found = match find(store, &name).await {
        Ok(found) => found,
        Err(NameError::Run(FindError::Store(error))) => {
            tracing::warn!(%error, approval = name, "an answer is kept until the log can be read");
            return Fate::Waits;
        }
        Err(NameError::Malformed(_) | NameError::Unknown { .. })
        | Err(NameError::Run(FindError::None(_) | FindError::Many { .. })) => return Fate::Settled,
    };
    match found.resolve_unattended(store, clock, answer, given).await {
        Err(AnswerError::Store(_)) => Fate::Waits,
        // Whoever answered sees in the log why it came to nothing.
        Ok(_) | Err(AnswerError::Pattern { .. } | AnswerError::Resolved(_) | AnswerError::Refused(_)) => {
            Fate::Settled
        }
    }
}

/// Tells a run its answers, and returns which could not be taken out.
async fn tell_all<F: Future<Output = Fate>>(
    tell: impl Fn(Spooled) -> F,
    answers: Vec<(PathBuf, Spooled)>,
) -> Vec<(PathBuf, io::Error)> {
    let mut failed = Vec::new();
    for (path, answer) in answers {
        if tell(answer).await == Fate::Settled {
            failed.extend(taken_out(path).await.err());
        }
    }
    failed
}

async fn told(supervisor: &Supervisor, answer: Spooled) -> Fate {
    let (run, input) = answer.into_input();
    match supervisor.ask(run, input).await {
        // Whoever answered sees in the log why it came to nothing.
        Ok(_) | Err(AskError::Refused(_)) => Fate::Settled,
        Err(AskError::NoSuchRun) => match is_open(&*supervisor.services().store, run).await {
            Ok(false) => Fate::Settled,
            Ok(true) | Err(_) => Fate::Waits,
        },
        Err(AskError::NotLive | AskError::Store(_)) => Fate::Waits,
    }
}

async fn is_open(store: &dyn EventStore, run: RunId) -> Result<bool, StoreError> {
    let this = RunFilter { among: Some(vec![run]), ended: Some(false), ..RunFilter::default() };
    Ok(!store.runs(this).await?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::run::Answer;

    #[tokio::test]
    async fn a_run_that_takes_no_answer_for_now_holds_up_its_own_alone() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::below(None, folder.path());
        let [stuck, other] = [1, 2].map(|byte| RunId::from_bytes([byte; 16]));
        for (run, approval) in [(stuck, 1), (stuck, 2), (other, 1), (other, 2)] {
            let answer = Spooled::new((run, approval), Answer::Approve(None), ("k".into(), None));
            spool.put(&answer).unwrap();
        }
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let serving = tokio::spawn(spool.clone().serve_by(move |answer: Spooled| {
            let tell = tell.clone();
            async move {
                tell.send((answer.run, answer.approval)).unwrap();
                if answer.run == stuck {
                    std::future::pending::<()>().await;
                }
                Fate::Settled
            }
        }));
        let mut heard = BTreeSet::new();
        let all = async {
            while heard.len() < 3 {
                heard.insert(told.recv().await.unwrap());
            }
        };
        tokio::time::timeout(Duration::from_secs(30), all).await.expect("the other run is told");
        assert_eq!(heard, BTreeSet::from([(stuck, 1), (other, 1), (other, 2)]));
        serving.abort();
    }
}
