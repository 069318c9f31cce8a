//! Progress of a batch that is run here, and what a person is told besides.

use std::{path::Path, time::Instant};

use indicatif::MultiProgress;

use super::BatchArgs;
use crate::{
    actor::{
        Supervisor,
        supervisor::{Blocked, Load},
    },
    app::{
        batch::{Batch, Event, Report},
        waiting,
    },
    cli::{
        Context,
        progress::{Progress, Reporter, Rest},
        render::counted,
        start::Tell,
        waits,
    },
    clock::{Clock as _, SystemClock},
    domain::{
        budget::{Node, Standing},
        event::ParkReason,
        id::BatchId,
    },
};

/// What a person is shown.
pub(super) struct Shown {
    progress: Progress,
    reporter: Reporter,
    screen: MultiProgress,
    since: Instant,
    tell: Tell,
    batch: BatchId,
    is_limited: bool,
}

impl Shown {
    pub(super) fn new(args: &BatchArgs, context: &Context, batch: &Batch, total: usize, tell: Tell) -> Self {
        let mut progress = Progress::new(total);
        for settled in &batch.plan().settled {
            progress.settled(settled.outcome);
        }
        let reporter = Reporter::new(args.progress, args.json, &context.screen, total);
        let screen = context.screen.clone();
        Self {
            progress,
            reporter,
            screen,
            since: Instant::now(),
            tell,
            batch: batch.id(),
            is_limited: args.max_cost.is_some(),
        }
    }

    pub(super) fn take(&mut self, event: Event) {
        let now = self.since.elapsed();
        match event {
            Event::Settled(outcome, usage) => {
                self.progress.used(usage);
                self.progress.ended(outcome, now);
            }
            Event::Retrying(_, usage, _) => self.progress.used(usage),
            Event::Left(run, why) => {
                let why = format!("{:#}", anyhow::Error::new(why));
                self.screen.suspend(|| (self.tell)(&format!("run {run} cannot go on: {why}")));
            }
            Event::Stopping => {}
        }
        self.reporter.show(&self.progress, now);
    }

    pub(super) async fn tick(&mut self, supervisor: &Supervisor) {
        let Load { live, waits, retries, .. } = supervisor.load().await;
        let now = SystemClock.now();
        self.progress.set_running(live);
        self.progress.set_waits(waits.iter().map(|wait| waits::waiting(wait, now)).collect());
        self.progress.set_retries(retries.values().sum());
        self.progress.set_trouble(supervisor.services().store.health().borrow().trouble());
        self.budget(supervisor).await;
        self.reporter.show(&self.progress, self.since.elapsed());
    }

    /// What was spent of what the batch may cost, if there is a limit.
    async fn budget(&mut self, supervisor: &Supervisor) {
        if !self.is_limited {
            return;
        }
        let standings = supervisor.accounts().await;
        let own = standings.into_iter().find(|(node, _)| *node == Node::Batch(self.batch));
        if let Some((_, Standing { cap: Some(cap), spent, .. })) = own {
            self.progress.set_budget(cap, spent);
        }
    }

    /// Tells how it ended, and how it goes on; `folder` has its log.
    pub(super) fn finish(mut self, report: &Report, folder: Option<&Path>) {
        self.progress.set_running(0);
        self.progress.set_trouble(None);
        self.progress.set_retries(report.retries);
        if report.unfinished == 0 {
            self.progress.set_waits(Vec::new());
        }
        let Report { halted, unfinished, unaffordable, undecided, .. } = *report;
        if let (1.., Some(Blocked::Approval)) = (undecided, &report.blocked) {
            // They may have come to wait since the last tick.
            let approval = waiting::words(ParkReason::Approval, None, SystemClock.now());
            self.progress.set_waits(vec![(undecided, approval)]);
        }
        let rest = Rest { halted, unfinished, unaffordable };
        self.reporter.finish(&self.progress, self.since.elapsed(), rest);
        if let Some(Blocked::Account(shut)) = &report.blocked {
            (self.tell)(&waits::shut(shut));
        }
        if let (1.., Some(folder)) = (undecided, folder) {
            (self.tell)(&waits::undecided(undecided, folder));
        }
        if unaffordable > 0 && !self.reporter.is_json() {
            let tasks = counted(unaffordable, "task");
            (self.tell)(&format!(
                "{tasks} not started (budget: cost); the same command with a larger --max-cost starts them"
            ));
        }
        let rest = unfinished.saturating_sub(unaffordable + undecided);
        if rest > 0 && !self.reporter.is_json() {
            let halted = if report.halted { "halted: " } else { "" };
            let tasks = counted(rest, "task");
            let how_to_go_on = match folder {
                Some(_) => "the same command continues",
                None => "their log is gone, since neither -o nor --state kept it",
            };
            (self.tell)(&format!("{halted}{tasks} not finished; {how_to_go_on}"));
        }
    }
}
