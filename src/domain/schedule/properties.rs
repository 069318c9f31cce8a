//! The schedule against a model that compares each job with each other, over random schedules.

use std::path::Path;

use proptest::{collection::vec, prelude::*, sample::select};

use super::{Phase, Schedule, Ticket};
use crate::domain::call::{Access, Mode, Scope};

/// One thing that is done to the schedule. A place counts the jobs there are, round and round.
#[derive(Clone, Debug)]
enum Step {
    Submit(Vec<Access>),
    Start,
    StartAll,
    Finish(usize),
    Cancel(usize),
    SetPermits(usize),
}

#[derive(Debug)]
struct Job {
    ticket: Ticket,
    accesses: Vec<Access>,
    phase: Phase,
}

/// The rules as they are said, in order of arrival.
#[derive(Debug)]
struct Model {
    permits: usize,
    jobs: Vec<Job>,
}

impl Model {
    fn count(&self, phase: Phase) -> usize {
        self.jobs.iter().filter(|job| job.phase == phase).count()
    }

    fn pick(&self, phase: Phase, place: usize) -> Option<usize> {
        let jobs: Vec<_> = (0..self.jobs.len()).filter(|&index| self.jobs[index].phase == phase).collect();
        (!jobs.is_empty()).then(|| jobs[place % jobs.len()])
    }

    /// What runs and what waits and arrived earlier, if it conflicts with the job.
    fn in_the_way(&self, index: usize) -> impl Iterator<Item = Ticket> {
        let job = &self.jobs[index];
        self.jobs.iter().enumerate().filter_map(move |(at, other)| {
            let counts = at != index && (other.phase == Phase::Running || at < index);
            (counts && conflict(&job.accesses, &other.accesses)).then_some(other.ticket)
        })
    }

    fn start(&mut self) -> Option<Ticket> {
        if self.count(Phase::Running) >= self.permits {
            return None;
        }
        let index = (0..self.jobs.len()).find(|&index| {
            self.jobs[index].phase == Phase::Waiting && self.in_the_way(index).next().is_none()
        })?;
        self.jobs[index].phase = Phase::Running;
        Some(self.jobs[index].ticket)
    }
}

fn conflict(one: &[Access], other: &[Access]) -> bool {
    let holds = |tree: &Access, path: &Access| {
        tree.scope == Scope::Tree && Path::new(&*path.path).starts_with(Path::new(&*tree.path))
    };
    one.iter().any(|a| {
        other.iter().any(|b| {
            let overlap = a.path == b.path || holds(a, b) || holds(b, a);
            overlap && (a.mode == Mode::Exclusive || b.mode == Mode::Exclusive)
        })
    })
}

/// Checks what must hold between any two steps, whatever the order of starts.
fn check(schedule: &Schedule, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!(schedule.waiting(), model.count(Phase::Waiting));
    prop_assert_eq!(schedule.running(), model.count(Phase::Running));
    for (index, job) in model.jobs.iter().enumerate() {
        let first = model.in_the_way(index).min();
        prop_assert_eq!(schedule.blocked_by(job.ticket), first);
        prop_assert!(job.phase == Phase::Waiting || first.is_none(), "{:?} runs past {:?}", job, first);
    }
    Ok(())
}

/// Checks that a permit or a lock is missing for each job that waits.
fn check_none_is_delayed(model: &Model) -> Result<(), TestCaseError> {
    if model.count(Phase::Running) < model.permits {
        for (index, job) in model.jobs.iter().enumerate() {
            let free = job.phase == Phase::Waiting && model.in_the_way(index).next().is_none();
            prop_assert!(!free, "{:?} is delayed", job);
        }
    }
    Ok(())
}

fn play(permits: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut schedule = Schedule::new(permits);
    let mut model = Model { permits, jobs: Vec::new() };
    let mut last = None;
    for step in steps {
        match step {
            Step::Submit(accesses) => {
                let ticket = schedule.submit(&accesses);
                prop_assert!(last < Some(ticket), "tickets grow");
                last = Some(ticket);
                model.jobs.push(Job { ticket, accesses, phase: Phase::Waiting });
            }
            Step::Start => prop_assert_eq!(schedule.start_next(), model.start()),
            Step::StartAll => {
                while let Some(ticket) = schedule.start_next() {
                    prop_assert_eq!(Some(ticket), model.start());
                }
                check_none_is_delayed(&model)?;
            }
            Step::Finish(place) => remove(&mut schedule, &mut model, Phase::Running, place)?,
            Step::Cancel(place) => remove(&mut schedule, &mut model, Phase::Waiting, place)?,
            Step::SetPermits(permits) => {
                schedule.set_permits(permits);
                model.permits = permits;
            }
        }
        check(&schedule, &model)?;
    }
    for job in model.jobs {
        prop_assert_eq!(schedule.remove(job.ticket), Some(job.phase));
    }
    prop_assert_eq!((schedule.waiting(), schedule.running(), schedule.paths.nodes()), (0, 0, 0));
    prop_assert_eq!(schedule.start_next(), None);
    Ok(())
}

fn remove(
    schedule: &mut Schedule,
    model: &mut Model,
    phase: Phase,
    place: usize,
) -> Result<(), TestCaseError> {
    if let Some(index) = model.pick(phase, place) {
        let ticket = model.jobs.remove(index).ticket;
        prop_assert_eq!(schedule.remove(ticket), Some(phase));
        prop_assert_eq!(schedule.remove(ticket), None);
    }
    Ok(())
}

/// Few and nested paths, some a prefix of another's name, so that most jobs meet.
fn access() -> impl Strategy<Value = Access> {
    let paths = ["/", "/a", "/ab", "/a/b", "/a/bc", "/a/b/c", "/a/b/d", "/a/b/c/d", "/ab/c", "/e/f", "/e/g"];
    (
        select(&[Scope::File, Scope::Tree][..]),
        select(paths.to_vec()),
        select(&[Mode::Shared, Mode::Exclusive][..]),
    )
        .prop_map(|(scope, path, mode)| Access { scope, path: path.into(), mode })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => vec(access(), 0..4).prop_map(Step::Submit),
        3 => Just(Step::Start),
        3 => Just(Step::StartAll),
        5 => (0..64_usize).prop_map(Step::Finish),
        3 => (0..64_usize).prop_map(Step::Cancel),
        1 => (0..6_usize).prop_map(Step::SetPermits),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_starts_the_same_jobs_in_the_same_order_as_the_model(
        permits in 0..8_usize,
        steps in vec(step(), 0..40),
    ) {
        play(permits, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_long_schedule_does_so_too(permits in 1..8_usize, steps in vec(step(), 200..400)) {
        play(permits, steps)?;
    }
}
