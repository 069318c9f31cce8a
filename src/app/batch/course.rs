//! The course of a batch: submits tasks as there is room, retries, gives up when too many fail, stops when told to.
//!
//! The same for a batch that is run by itself and for one of a daemon's many. What differs is a [`Host`]'s business:
//! how many runs there is room for, who asks for something meanwhile, where results go, how runs are ended early.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::{
    BatchError, Event, Report,
    submission::{How, HowOver, Next, OnItsWay, Over},
    tasks::{LineLost, Tasks},
};
use crate::{
    actor::{Supervisor, supervisor::Wait},
    domain::{
        batch::{self, Halt, HaltHow},
        budget::Period,
        event::{ParkReason, RunEnd},
        id::{BatchId, RunId},
        outcome::Outcome,
    },
};

/// Runs of a batch that may be held without taking up room: their tasks wait for an account or a time, and the others go on.
const MOST_HELD: usize = 10_000;

/// What a batch is run by.
#[derive(Clone, Copy, Debug)]
pub(in crate::app) struct Terms {
    /// New attempts that a task gets by itself.
    pub(in crate::app) retries: u32,
    /// When to give up.
    pub(in crate::app) halt: Option<Halt>,
    /// How many tasks a share of all is a share of.
    pub(in crate::app) chosen: usize,
}

/// What is asked of a batch under way.
#[derive(Debug)]
pub(in crate::app) enum Asked {
    /// No new task starts any more.
    Stop,
    /// The room may have changed.
    Look,
    /// A settled task, with its outcome so far, has another attempt.
    Again(Next, Outcome),
}

/// Who has a batch run.
pub(in crate::app) trait Host {
    /// How many runs may be on their way at once.
    fn room(&self) -> usize;

    /// Waits until something is asked. Nothing is lost if the wait is given up.
    fn asked(&mut self) -> impl Future<Output = Asked> + Send;

    /// A task has a run that is on its way.
    fn started(&mut self, task: usize, run: RunId);

    /// Something happened, to this task if it is about one.
    fn tell(&mut self, task: Option<usize>, event: Event);

    /// A task is settled.
    fn settled(
        &mut self,
        over: &Over,
        end: &Arc<RunEnd>,
    ) -> impl Future<Output = Result<(), BatchError>> + Send;

    /// A task cannot be started, since nobody knows what it asks.
    fn lost(&mut self, task: usize, why: LineLost);

    /// The run of a task could not be begun: there is no money left. Tells whether there may be more some time.
    fn unaffordable(&mut self, task: usize) -> bool;

    /// There may be more money now.
    fn affordable(&mut self) {}

    /// Whether it gives up where only a person can open the account that all that is left waits for.
    fn stops_when_blocked(&self) -> bool;

    /// Whether it goes on, after a while, with what the log has lost.
    fn outlasts_the_log(&self) -> bool;

    /// The batch is given up, and this is to become of its runs.
    fn halt(&mut self, how: HaltHow);
}

/// A batch under way.
pub(in crate::app) struct Course<'a, H> {
    supervisor: &'a Supervisor,
    batch: BatchId,
    tasks: &'a dyn Tasks,
    terms: Terms,
    host: H,
    report: Report,
    failed: usize,
    /// Tasks whose next attempt is to come, with their last one and its end. Once its time has come it may wait for room.
    retrying: BTreeMap<usize, (Over, Arc<RunEnd>)>,
    /// Runs that the log has lost, until they are tried again.
    lost: usize,
    given_up: usize,
    stopping: bool,
    /// There is no money left to begin anything with.
    unaffordable: bool,
    cut_short: bool,
    /// Ends what is on its way as cancelled.
    cancel: CancellationToken,
}

/// Where a course has led.
pub(in crate::app) struct Reached<H> {
    pub(in crate::app) report: Report,
    pub(in crate::app) host: H,
    /// A run stopped without an end: herder is stopping, or in no state to go on.
    pub(in crate::app) cut_short: bool,
    /// Tasks that were settled though another attempt was to follow.
    pub(in crate::app) given_up: usize,
    /// Why it came to its end early: the results cannot be written any more, or the log has failed. What is of record
    /// stays so.
    pub(in crate::app) error: Option<BatchError>,
}

impl<'a, H: Host> Course<'a, H> {
    /// A batch of which `settled` is of record.
    pub(in crate::app) fn new(
        supervisor: &'a Supervisor,
        batch: BatchId,
        tasks: &'a dyn Tasks,
        terms: Terms,
        settled: Vec<Outcome>,
        host: H,
    ) -> Self {
        Self {
            supervisor,
            batch,
            tasks,
            terms,
            host,
            lost: 0,
            given_up: 0,
            failed: settled.iter().filter(|outcome| **outcome != Outcome::Done).count(),
            report: Report { settled, ..Report::default() },
            retrying: BTreeMap::new(),
            stopping: false,
            unaffordable: false,
            cut_short: false,
            cancel: CancellationToken::new(),
        }
    }

    /// Has `cancel` end what is on its way.
    #[must_use]
    pub(in crate::app) fn until(self, cancel: CancellationToken) -> Self {
        Self { cancel, ..self }
    }

    /// Has so many of the failures of record not count: they were there before.
    #[must_use]
    pub(in crate::app) fn excusing(self, failures: usize) -> Self {
        Self { failed: self.failed.saturating_sub(failures), ..self }
    }

    /// Has herder work on what waits until nothing is left to do, or it is to stop.
    pub(in crate::app) async fn run(mut self, waiting: VecDeque<Next>) -> Reached<H> {
        let error = self.try_to_run(waiting).await.err();
        let Self { report, host, cut_short, given_up, .. } = self;
        Reached { report, host, cut_short, given_up, error }
    }

    async fn try_to_run(&mut self, waiting: VecDeque<Next>) -> Result<(), BatchError> {
        let left = self.drive(waiting).await?;
        self.report.unfinished += left;
        self.given_up = self.retrying.len();
        // Those that wait for another attempt will not get it now.
        for (over, end) in std::mem::take(&mut self.retrying).into_values() {
            self.settle(&over, &end).await?;
        }
        Ok(())
    }

    /// Tells how many were never submitted, or were lost.
    async fn drive(&mut self, mut waiting: VecDeque<Next>) -> Result<usize, BatchError> {
        let (mut live, mut delays) = (FuturesUnordered::new(), FuturesUnordered::new());
        let mut held = self.supervisor.held();
        loop {
            // Whoever cancels says so too, but perhaps to the course before this one.
            if self.cancel.is_cancelled() {
                self.stop();
            }
            let kept = held.borrow_and_update().get(&Some(self.batch)).copied().unwrap_or_default();
            let room = self.host.room().saturating_add(kept.min(MOST_HELD));
            let may_start = !self.stopping && !self.unaffordable && live.len() < room && !waiting.is_empty();
            // Nobody is there to open an account, and nothing else is left to do.
            let may_be_blocked =
                self.host.stops_when_blocked() && !self.stopping && !may_start && delays.is_empty();
            if live.is_empty() && (self.stopping || (delays.is_empty() && waiting.is_empty())) {
                waiting.retain(|next| !self.retrying.contains_key(&next.task));
                self.cut_short |= self.lost > 0;
                self.report.unaffordable = if self.unaffordable { waiting.len() } else { 0 };
                return Ok(waiting.len() + self.lost);
            }
            let midnight = self.until_midnight();
            let over: Over = tokio::select! {
                biased;
                asked = self.host.asked() => {
                    match asked {
                        Asked::Stop => self.stop(),
                        Asked::Look => self.look_again(),
                        Asked::Again(next, outcome) => {
                            self.failed = self.failed.saturating_sub(usize::from(outcome != Outcome::Done));
                            live.extend(self.submit(next).await.map(|way| way.over(self.cancel.clone())));
                        }
                    }
                    continue;
                }
                // One at a time and in order, and between two of them what is asked is heard.
                () = std::future::ready(()), if may_start => {
                    if let Some(next) = waiting.pop_front() {
                        live.extend(self.submit(next).await.map(|way| way.over(self.cancel.clone())));
                    }
                    continue;
                }
                () = tokio::time::sleep(midnight), if self.unaffordable && !self.stopping => {
                    self.look_again();
                    continue;
                }
                Some(over) = live.next(), if !live.is_empty() => over?,
                Some(blocked) = self.supervisor.blocked(), if may_be_blocked => {
                    self.report.blocked = Some(blocked);
                    self.report.undecided = self.undecided().await;
                    self.host.halt(HaltHow::Now);
                    self.stop();
                    continue;
                }
                Ok(()) = held.changed(), if !waiting.is_empty() => continue,
                Some(next) = delays.next(), if !delays.is_empty() && !self.stopping => {
                    let next: Next = next;
                    self.lost -= usize::from(next.lost > 0);
                    waiting.push_front(next);
                    continue;
                }
            };
            if let HowOver::Unaffordable = over.how {
                // It goes on as the run that it is.
                let Over { task, run, attempt, made, .. } = over;
                waiting.push_front(Next { task, attempt, made, how: How::Resume(run), lost: 0 });
                self.run_out_of_money(task);
                continue;
            }
            if let Some((next, delay)) = self.over(over).await? {
                delays.push(async move {
                    tokio::time::sleep(delay).await;
                    next
                });
            }
            if let Some(how) = self.halt() {
                self.host.halt(how);
            }
        }
    }

    async fn submit(&mut self, next: Next) -> Option<OnItsWay> {
        let task = next.task;
        self.retrying.remove(&task);
        match OnItsWay::submit(self.supervisor, self.batch, self.tasks, next).await {
            Ok(way) => {
                self.host.started(task, way.run());
                Some(way)
            }
            Err(why) => {
                self.report.unfinished += 1;
                self.host.lost(task, why);
                None
            }
        }
    }

    /// Begins nothing more, until there is more money.
    fn run_out_of_money(&mut self, task: usize) {
        self.unaffordable = true;
        if !self.host.unaffordable(task) {
            self.stop();
        }
    }

    fn look_again(&mut self) {
        if !self.stopping && std::mem::take(&mut self.unaffordable) {
            self.host.affordable();
        }
    }

    /// When the budgets of users that are for a time count anew.
    fn until_midnight(&self) -> Duration {
        let now = self.supervisor.services().clock.now();
        let midnight = Period::Day.start(now).after(Duration::from_secs(24 * 60 * 60));
        midnight.since(now) + Duration::from_secs(1)
    }

    fn stop(&mut self) {
        if !self.stopping {
            self.stopping = true;
            self.host.tell(None, Event::Stopping);
        }
    }

    /// How many runs wait for people to decide.
    async fn undecided(&self) -> usize {
        let waits = self.supervisor.load().await.waits.into_iter();
        let is_one = |wait: &Wait| wait.batch == Some(self.batch) && wait.reason == ParkReason::Approval;
        waits.filter(is_one).map(|wait| wait.runs).sum()
    }

    /// Takes in that a run is over: another attempt follows, or the task is settled.
    async fn over(&mut self, over: Over) -> Result<Option<(Next, Duration)>, BatchError> {
        let end = match &over.how {
            HowOver::Ended(end) => end.clone(),
            HowOver::Lost(_) if !self.stopping && self.host.outlasts_the_log() => {
                let Over { task, run, attempt, made, predecessor, lost, .. } = over;
                let lost = lost.saturating_add(1);
                tracing::warn!(run.id = %run, lost, "log has lost a run; tried again after a while");
                let delay = batch::retry_delay(lost, crate::actor::jitter());
                self.lost += 1;
                return Ok(Some((
                    Next { task, attempt, made, how: How::Recover(run, predecessor), lost },
                    delay,
                )));
            }
            HowOver::Lost(Some(error)) if !self.stopping => return Err(error.clone().into()),
            HowOver::Stopped | HowOver::Unaffordable | HowOver::Lost(_) => {
                self.report.unfinished += 1;
                self.cut_short = true;
                self.stop();
                return Ok(None);
            }
            HowOver::Left(why) => {
                self.report.unfinished += 1;
                self.host.tell(Some(over.task), Event::Left(over.run, why.clone()));
                return Ok(None);
            }
        };
        let again = over.made < self.terms.retries && batch::is_worth_a_retry(end.outcome);
        if self.stopping || !again {
            self.settle(&over, &end).await?;
            return Ok(None);
        }
        let made = over.made + 1;
        let delay = batch::retry_delay(made, crate::actor::jitter());
        self.host.tell(Some(over.task), Event::Retrying(end.outcome, end.usage, delay));
        let next = Next {
            task: over.task,
            attempt: over.attempt + 1,
            made,
            how: How::Start(Some(over.run)),
            lost: 0,
        };
        self.retrying.insert(over.task, (over, end));
        Ok(Some((next, delay)))
    }

    async fn settle(&mut self, over: &Over, end: &Arc<RunEnd>) -> Result<(), BatchError> {
        self.host.tell(Some(over.task), Event::Settled(end.outcome, end.usage));
        self.report.settled.push(end.outcome);
        self.failed += usize::from(end.outcome != Outcome::Done);
        self.host.settled(over, end).await
    }

    /// Gives the batch up if too many tasks have failed.
    fn halt(&mut self) -> Option<HaltHow> {
        let is_reached = |halt: &Halt| halt.is_reached(self.failed, self.terms.chosen);
        let halt = self.terms.halt.filter(|halt| !self.stopping && is_reached(halt))?;
        self.report.halted = true;
        self.stop();
        Some(halt.how)
    }
}
