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
    record::{Record, Summary},
    recover::is_passing,
    status::BatchState,
};
use crate::{
    app::batch::{
        Asked, BatchError, Course, Event, History, Host, How, LineLost, Next, Over, Reached, Tasks, Terms,
    },
    domain::{
        batch::{HaltHow, Plan},
        budget::Node,
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
    halted: bool,
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
        entry
            .status
            .send_modify(|status| (status.halted, status.unaffordable, status.error) = (false, false, None));
        let ids = (0..tasks.count()).filter_map(|place| tasks.id(place).cloned());
        let board = Board::new(entry.status.clone(), ids, history, &going_on, &entry.order());
        let board = Arc::new(board);
        for next in waiting.iter().filter(|next| matches!(next.how, How::Await(_))) {
            board.put(next.task, Standing::InFlight, Usage::default());
        }
        entry.set_board(board.clone());
        // Whoever asks waits for an answer, or asks for something that is told once.
        let (tell, asks) = mpsc::unbounded_channel();
        let cancel = CancellationToken::new();
        work.driver = Some(Driver { asks: tell, cancel: cancel.clone() });
        let Record { retries, halt, excused, starts_nothing, .. } = work.record;
        // Who has single tasks done again has seen what failed.
        let halt = halt.filter(|_| !starts_nothing);
        let chosen = work.record.places(tasks.count()).len();
        let terms = Terms { retries, halt, chosen };
        let driving = Driving {
            entry: entry.clone(),
            board,
            asks,
            cancel,
            closing: self.0.closing.clone(),
            is_told_of_closing: false,
            halted: false,
            left: None,
        };
        self.0.drivers.spawn(self.clone().drive(driving, tasks, terms, excused, waiting));
    }

    async fn drive(
        self,
        mut driving: Driving,
        tasks: Lines,
        mut terms: Terms,
        excused: usize,
        mut waiting: VecDeque<Next>,
    ) {
        let (entry, cancel) = (driving.entry.clone(), driving.cancel.clone());
        loop {
            let (supervisor, settled) = (&self.0.supervisor, driving.board.outcomes());
            let course = Course::new(supervisor, entry.id, &tasks, terms, settled, driving);
            let reached = course.until(cancel.clone()).excusing(excused).run(waiting).await;
            let Reached { report, host, cut_short, given_up, error } = reached;
            driving = host;
            if let Some(error) = error {
                let mut work = entry.work.lock().await;
                return driving.leave(&mut work, Some(Told(&error).to_string()));
            }
            let is_kept_back = self.0.closing.is_cancelled() && report.unfinished + given_up > 0;
            let is_whole = !cut_short && (report.halted || !is_kept_back);
            let mut tries = 0;
            waiting = loop {
                let mut work = entry.work.lock().await;
                let asked = driving.asked_meanwhile();
                if !asked.is_empty() && !cut_short {
                    break asked;
                }
                let Err(error) = self.reached(&driving, &mut work, is_whole).await else { return };
                drop(work);
                if !(is_passing(&error) && self.rested(&mut tries).await) {
                    let mut work = entry.work.lock().await;
                    return driving.leave(&mut work, Some(Told(&error).to_string()));
                }
            };
            // What is done again now was asked for one by one.
            terms.halt = None;
        }
    }

    /// Puts on record that the batch has ended; if herder stopped before that, nothing is, and it goes on next time.
    async fn reached(&self, driving: &Driving, work: &mut Work, is_whole: bool) -> Result<(), StoreError> {
        let Driving { entry, board, left, halted, .. } = driving;
        let is_closing = self.0.closing.is_cancelled();
        let is_cancelled = work.record.state == BatchState::Cancelled;
        if !(is_whole || is_cancelled && !is_closing) || (left.is_some() && !is_cancelled) {
            let stopped =
                || "herder stopped before the batch had ended; it goes on at the next start".to_owned();
            driving.leave(work, left.clone().or_else(|| (!is_closing).then(stopped)));
            return Ok(());
        }
        if !self.end_open(entry.id).await? {
            driving.leave(work, None);
            return Ok(());
        }
        if !board.is_settled() {
            board.catch_up(&History::read(&*self.0.store, entry.id).await?);
        }
        self.end(entry, work, *halted).await?;
        work.driver = None;
        board.close(Closed::Complete);
        entry.put_board_away();
        Ok(())
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
        entry.write(&*self.0.store, work, record, Vec::new()).await?;
        entry.status.send_modify(|status| status.ends += 1);
        entry.is_no_longer_counted();
        self.0.supervisor.forget(Node::Batch(entry.id));
        Ok(())
    }
}

impl Driving {
    /// Nobody drives the batch any more, though it has not ended.
    fn leave(&self, work: &mut Work, error: Option<String>) {
        work.driver = None;
        if let Some(error) = error {
            self.entry.fail(error);
        }
        self.board.close(Closed::Unfinished);
    }

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
        self.entry.status.borrow().concurrency
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

    fn lost(&mut self, task: usize, why: LineLost) {
        self.board.put(task, Standing::Left, Usage::default());
        self.left.get_or_insert(why.to_string());
    }

    fn unaffordable(&mut self, task: usize) -> bool {
        self.board.put(task, Standing::Waiting, Usage::default());
        self.entry.status.send_modify(|status| status.unaffordable = true);
        true
    }

    fn affordable(&mut self) {
        self.entry.status.send_modify(|status| status.unaffordable = false);
    }

    /// Somebody may open it any time.
    fn stops_when_blocked(&self) -> bool {
        false
    }

    fn outlasts_the_log(&self) -> bool {
        true
    }

    /// Other batches' runs go on, so nothing is drained: what is to stop now is cancelled.
    fn halt(&mut self, how: HaltHow) {
        self.halted = true;
        self.entry.status.send_modify(|status| status.halted = true);
        match how {
            HaltHow::Now => self.cancel.cancel(),
            HaltHow::Soon => {}
        }
    }
}
