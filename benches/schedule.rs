//! How many operations a second the mutation queue does on one core, by what the jobs touch and how many wait.
//!
//! An operation is one submission, or one removal with the start before it; a round is one of each, so that as
//! many wait after it as before.

use std::{collections::VecDeque, hint::black_box};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use herder::domain::{
    call::{Access, Mode, Scope},
    schedule::{Schedule, Ticket},
};

const WAITING: [usize; 5] = [0, 10, 100, 1_000, 10_000];
const PERMITS: usize = 16;
/// More than there are jobs at any time.
const FILES: usize = 20_000;

struct Load {
    schedule: Schedule,
    running: VecDeque<Ticket>,
    jobs: Vec<[Access; 1]>,
    next: usize,
}

impl Load {
    fn new(jobs: Vec<[Access; 1]>, waiting: usize) -> Self {
        let mut load = Self { schedule: Schedule::new(PERMITS), running: VecDeque::new(), jobs, next: 0 };
        while load.schedule.waiting() < waiting {
            load.submit();
            load.start();
        }
        load
    }

    fn submit(&mut self) {
        self.schedule.submit(black_box(&self.jobs[self.next]));
        self.next = (self.next + 1) % self.jobs.len();
    }

    fn start(&mut self) {
        while let Some(ticket) = self.schedule.start_next() {
            self.running.push_back(ticket);
        }
    }

    fn round(&mut self) {
        self.submit();
        self.start();
        if let Some(ticket) = self.running.pop_front() {
            black_box(self.schedule.remove(ticket));
        }
        self.start();
    }
}

/// Each job has a file of its own.
fn disjoint() -> Vec<[Access; 1]> {
    (0..FILES).map(|number| [access(Scope::File, Mode::Exclusive, &path(number))]).collect()
}

/// All jobs write the same file.
fn one_file() -> Vec<[Access; 1]> {
    vec![[access(Scope::File, Mode::Exclusive, &path(0))]]
}

/// Of 20 jobs 13 read and 4 write one of 100 files, 2 search a folder or the workspace, and one has a folder for itself.
fn mixed() -> Vec<[Access; 1]> {
    let job = |number: usize| {
        let place = number * 7919 % FILES;
        let file = path(place % 10 * 100 + place / 10 % 10);
        match number % 20 {
            0..13 => access(Scope::File, Mode::Shared, &file),
            13..17 => access(Scope::File, Mode::Exclusive, &file),
            17 => access(Scope::Tree, Mode::Shared, &folder(place % 10)),
            18 => access(Scope::Tree, Mode::Shared, "/home/someone/work"),
            _ => access(Scope::Tree, Mode::Exclusive, &folder(place % 10)),
        }
    };
    (0..FILES).map(|number| [job(number)]).collect()
}

fn path(number: usize) -> String {
    format!("{}/file_{}.rs", folder(number / 100), number % 100)
}

fn folder(number: usize) -> String {
    format!("/project/src/module_{number}")
}

fn access(scope: Scope, mode: Mode, path: &str) -> Access {
    Access { scope, path: path.into(), mode }
}

fn schedule(criterion: &mut Criterion) {
    for (name, jobs) in [("disjoint", disjoint()), ("one_file", one_file()), ("mixed", mixed())] {
        let mut group = criterion.benchmark_group(format!("schedule/{name}"));
        group.throughput(Throughput::Elements(2));
        for waiting in WAITING {
            group.bench_with_input(BenchmarkId::from_parameter(waiting), &waiting, |bencher, &waiting| {
                let mut load = Load::new(jobs.clone(), waiting);
                bencher.iter(|| load.round());
            });
        }
        group.finish();
    }
}

/// Each job waits for the first one and is cancelled out of turn: a round is a submission and a cancellation.
fn cancelled(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("schedule/cancelled");
    group.throughput(Throughput::Elements(2));
    let job = access(Scope::Tree, Mode::Exclusive, &folder(0));
    for waiting in WAITING {
        group.bench_with_input(BenchmarkId::from_parameter(waiting), &waiting, |bencher, &waiting| {
            let mut schedule = Schedule::new(PERMITS);
            schedule.submit(std::slice::from_ref(&job));
            schedule.start_next();
            let mut tickets: Vec<_> =
                (0..waiting).map(|_| schedule.submit(std::slice::from_ref(&job))).collect();
            let mut place = 0;
            bencher.iter(|| {
                tickets.push(schedule.submit(std::slice::from_ref(black_box(&job))));
                place = (place + 7919) % tickets.len();
                black_box(schedule.remove(tickets.swap_remove(place)));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, schedule, cancelled);
criterion_main!(benches);
