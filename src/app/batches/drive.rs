//! Drives one batch of many until it has ended, or herder stops.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Batches,
    board::{Board, Closed, Standing},
    entry::{Driver, Entry, Work},
    lines::Lines,
    record::Summary,
    status::BatchState,
};
use crate::{
    app::batch::{
        Asked, BatchError, Course, Event, History, Host, How, Next, Over, Reached, Report, Tasks, Terms,
    },
    domain::{
        batch::{HaltHow, Plan},
        event::RunEnd,
        id::RunId,
        usage::Usage,
    },
    store::StoreError,
    tool::workspace::Told,
};

/// Who has it run: the daemon, which shares its supervisor among many.
struct Driving {
    entry: Arc<Entry>,
    board: Arc<Board>,
    asks: mpsc::UnboundedReceiver<Asked>,
    cancel: CancellationToken,
    closing: CancellationToken,
    is_told_of_closing: bool,
    /// Why a run could not be worked on, if that happened.
    left: Option<String>,
}

impl Batches {
    /// Starts a task that drives the batch. `waiting` is what it does; the rest of the plan says where tasks stand.
    pub(super) fn set_off(
        &self,
        entry: &Arc<Entry>,
        work: &mut Work,
        tasks: Lines,
        history: &History,
        plan: &Plan,
        waiting: VecDeque<Next>,
    ) {
        let going_on: BTreeSet<usize> =
            plan.start.iter().map(|one| one.task).chain(plan.resume.iter().map(|one| one.task)).collect();
        entry.status.send_modify(|status| (status.halted, status.error) = (false, None));
        let ids = (0..tasks.count()).filter_map(|place| tasks.id(place).cloned());
        let board = Arc::new(Board::new(entry.status.clone(), ids, history, &going_on));
        for next in waiting.iter().filter(|next| matches!(next.how, How::Await(_))) {
            board.put(next.task, Standing::InFlight, Usage::default());
        }
        entry.set_board(Some(board.clone()));
        // Whoever asks waits for an answer, or asks for something that is told once.
        let (tell, asks) = mpsc::unbounded_channel();
        let cancel = CancellationToken::new();
        work.driver = Some(Driver { asks: tell, cancel: cancel.clone() });
        let terms = Terms { retries: work.record.retries, halt: work.record.halt, chosen: tasks.count() };
        let driving = Driving {
            entry: entry.clone(),
            board,
            asks,
            cancel,
            closing: self.0.closing.clone(),
            is_told_of_closing: false,
            left: None,
        };
        self.0.drivers.spawn(self.clone().drive(driving, tasks, terms, waiting));
    }

    async fn drive(self, mut driving: Driving, tasks: Lines, terms: Terms, mut waiting: VecDeque<Next>) {
        let (entry, board, cancel) = (driving.entry.clone(), driving.board.clone(), driving.cancel.clone());
        loop {
            let supervisor = &self.0.supervisor;
            let course = Course::new(supervisor, entry.id, &tasks, terms, board.outcomes(), driving);
            let reached = match course.until(cancel.clone()).run(waiting).await {
                Ok(reached) => reached,
                Err(error) => {
                    let mut work = entry.work.lock().await;
                    return leave(&entry, &board, &mut work, Some(Told(&error).to_string()));
                }
            };
            let Reached { report, host, cut_short, given_up } = reached;
            driving = host;
            let is_kept_back = self.0.closing.is_cancelled() && report.unfinished + given_up > 0;
            let mut work = entry.work.lock().await;
            waiting = driving.asked_meanwhile();
            if waiting.is_empty() || cut_short {
                let is_whole = !cut_short && (report.halted || !is_kept_back);
                return self.reached(&driving, &mut work, &report, is_whole).await;
            }
        }
    }

    /// Puts on record that the batch has ended; if herder stopped before that, nothing is, and it goes on next time.
    async fn reached(&self, driving: &Driving, work: &mut Work, report: &Report, is_whole: bool) {
        let Driving { entry, board, left, .. } = driving;
        let is_closing = self.0.closing.is_cancelled();
        if !is_whole || (left.is_some() && work.record.state != BatchState::Cancelled) {
            let stopped =
                || "herder stopped before the batch had ended; it goes on at the next start".to_owned();
            let error = left.clone().or_else(|| (!is_closing).then(stopped));
            return leave(entry, board, work, error);
        }
        if let Err(error) = self.end(entry, work, report.halted).await {
            return leave(entry, board, work, Some(Told(&error).to_string()));
        }
        work.driver = None;
        board.close(Closed::Complete);
        entry.set_board(None);
    }

    /// Puts on record how the batch has ended.
    pub(super) async fn end(&self, entry: &Entry, work: &mut Work, halted: bool) -> Result<(), StoreError> {
        let mut record = work.record.clone();
        if record.state == BatchState::Open {
            record.state = BatchState::Ended;
        }
        record.starts_nothing = false;
        let counts = entry.status.borrow().counts.clone();
        record.summary = Some(Summary { counts, halted });
        entry.write(&*self.0.store, work, record, Vec::new()).await
    }
}

/// Nobody drives the batch any more, though it has not ended.
fn leave(entry: &Entry, board: &Board, work: &mut Work, error: Option<String>) {
    work.driver = None;
    if let Some(error) = error {
        entry.fail(error);
    }
    board.close(Closed::Unfinished);
}

impl Driving {
    /// What was asked while the batch came to its end.
    fn asked_meanwhile(&mut self) -> VecDeque<Next> {
        let mut again = VecDeque::new();
        while let Ok(asked) = self.asks.try_recv() {
            match asked {
                Asked::Again(next, _) => again.push_back(next),
                Asked::Stop | Asked::Look => {}
            }
        }
        again
    }
}

impl Host for Driving {
    fn room(&self) -> usize {
        let status = self.entry.status.borrow();
        if status.paused { 0 } else { status.concurrency }
    }

    async fn asked(&mut self) -> Asked {
        tokio::select! {
            () = self.closing.cancelled(), if !self.is_told_of_closing => {
                self.is_told_of_closing = true;
                Asked::Stop
            }
            Some(asked) = self.asks.recv() => asked,
            else => std::future::pending().await,
        }
    }

    fn started(&mut self, task: usize, _: RunId) {
        self.board.put(task, Standing::InFlight, Usage::default());
    }

    fn tell(&mut self, task: Option<usize>, event: Event) {
        match (task, event) {
            (Some(task), Event::Retrying(_, usage, _)) => self.board.put(task, Standing::Retrying, usage),
            (Some(task), Event::Left(run, why)) => {
                self.board.put(task, Standing::Left, Usage::default());
                let why = format!("run {run} cannot go on: {}", Told(&why));
                self.left.get_or_insert(why);
            }
            // A settled task is told of once it is ready to be shown.
            (_, Event::Settled(..) | Event::Stopping) | (None, Event::Retrying(..) | Event::Left(..)) => {}
        }
    }

    async fn settled(&mut self, over: &Over, end: &Arc<RunEnd>) -> Result<(), BatchError> {
        self.board.put(over.task, Standing::Settled(over.run, end.outcome), end.usage);
        Ok(())
    }

    /// Other batches' runs go on, so nothing is drained: what is to stop now is cancelled.
    fn halt(&mut self, how: HaltHow) {
        self.entry.status.send_modify(|status| status.halted = true);
        match how {
            HaltHow::Now => self.cancel.cancel(),
            HaltHow::Soon => {}
        }
    }
}
