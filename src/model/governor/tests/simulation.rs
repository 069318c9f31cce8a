//! Many runs that share a governor, played event by event on a clock of their own: the same each time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    super::{
        Rates,
        state::{Held, Sent, State},
    },
    Dice, millis, secs,
    server::{Answer, Server, Setup},
};
use crate::domain::{outcome::FaultClass, retry};

pub(super) struct Simulation {
    start: Instant,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    happenings: Vec<Event>,
    state: State,
    admission: VecDeque<usize>,
    sending: VecDeque<usize>,
    runs: Vec<Run>,
    server: Server,
    dice: Dice,
    report: Report,
}

#[derive(Clone, Copy)]
enum Event {
    /// A run's tools are done: it wants to ask.
    Ask(usize),
    /// A run's back-off is over.
    Again(usize),
    /// The head of an answer and its first token.
    Begun(usize, Answer),
    Back(usize, Answer),
    /// What held the first in the queue may be over.
    Look,
}

#[derive(Default)]
struct Run {
    turns: u32,
    tries: u32,
    attempts: u32,
    sent: Option<Sent>,
}

/// What is there to judge it by.
#[derive(Default)]
pub(super) struct Report {
    pub(super) took: Duration,
    pub(super) failed_runs: usize,
    pub(super) refused: u32,
    pub(super) taken: u32,
    pub(super) busy: Duration,
    /// Of each second, the limit.
    pub(super) limits: Vec<u32>,
    /// When the limit was cut.
    pub(super) cuts: Vec<Duration>,
    /// The most that were out beyond the limit when something was sent.
    pub(super) overrun: u32,
}

impl Report {
    /// The limit in the seconds from `from`, up to the last few runs.
    pub(super) fn limits_from(&self, from: usize) -> &[u32] {
        &self.limits[from..self.limits.len() - 10]
    }

    /// The longest time in which the limit stood still, up to the last few runs.
    pub(super) fn longest_stand(&self) -> Duration {
        let limits = self.limits_from(0);
        secs(limits.chunk_by(|one, next| one == next).map(<[u32]>::len).max().unwrap() as u64)
    }
}

impl Simulation {
    pub(super) fn new(seed: u64, runs: usize, turns: u32, rates: &Rates, setup: Setup) -> Self {
        let start = Instant::now();
        let mut simulation = Self {
            start,
            now: start,
            events: BinaryHeap::new(),
            happenings: Vec::new(),
            state: State::new(rates, start),
            admission: VecDeque::new(),
            sending: VecDeque::new(),
            runs: (0..runs).map(|_| Run { turns, ..Run::default() }).collect(),
            server: Server::new(setup, start),
            dice: Dice(seed),
            report: Report::default(),
        };
        for run in 0..runs {
            simulation.at(start, Event::Ask(run));
        }
        simulation
    }

    /// Plays until every run has ended.
    pub(super) fn play(mut self) -> Report {
        while let Some(Reverse((at, index))) = self.events.pop() {
            self.sample(at);
            self.now = at;
            match self.happenings[usize::try_from(index).unwrap()] {
                Event::Ask(run) => self.admission.push_back(run),
                Event::Again(run) => self.sending.push_back(run),
                Event::Begun(run, answer) => self.begun(run, answer),
                Event::Back(run, answer) => self.back(run, answer),
                Event::Look => {}
            }
            self.pump();
        }
        assert_eq!((self.state.held, self.state.out), (0, 0), "every place is free again");
        self.report.took = self.now - self.start;
        self.report.failed_runs = self.runs.iter().filter(|run| run.turns > 0).count();
        self.report.refused = self.server.refused;
        self.report.taken = self.server.taken;
        self.report.busy = self.server.busy;
        self.report
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, self.happenings.len() as u64)));
        self.happenings.push(event);
    }

    fn sample(&mut self, to: Instant) {
        while self.start + secs(self.report.limits.len() as u64) <= to {
            self.report.limits.push(self.state.limiter.limit());
        }
    }

    fn pump(&mut self) {
        while !self.admission.is_empty() && self.state.admit() {
            self.sending.extend(self.admission.pop_front());
        }
        while let Some(run) = self.sending.front().copied() {
            match self.state.send(1_000, self.now) {
                Ok(sent) => {
                    self.sending.pop_front();
                    self.runs[run].sent = Some(sent);
                    let over = self.state.out.saturating_sub(self.state.limiter.limit());
                    self.report.overrun = self.report.overrun.max(over);
                    let answer = self.server.receive(&mut self.dice, self.now);
                    self.at(self.now + answer.first_token.min(answer.after), Event::Begun(run, answer));
                    self.at(self.now + answer.after, Event::Back(run, answer));
                }
                Err(Held::Full) => break,
                Err(Held::Until(until)) => {
                    if self.events.peek().is_none_or(|Reverse((next, _))| until < *next) {
                        self.at(until, Event::Look);
                    }
                    break;
                }
            }
        }
    }

    fn begun(&mut self, run: usize, answer: Answer) {
        let sent = self.runs[run].sent.unwrap();
        let cuts = self.state.limiter.cuts();
        if let Some(told) = answer.told {
            self.state.told(&told, Some(sent), self.now);
        }
        if answer.result.is_ok() {
            self.state.first_token(sent, answer.first_token, self.now);
        }
        self.note_cut(cuts);
    }

    fn back(&mut self, run: usize, answer: Answer) {
        self.server.out -= u32::from(answer.taken);
        let cuts = self.state.limiter.cuts();
        let sent = self.runs[run].sent.take().unwrap();
        match answer.result {
            Ok(()) => {
                self.state.answered(sent, 1_000, self.now);
                self.end_turn(run);
            }
            Err((class, retry_after)) => {
                self.state.failed(sent, class, retry_after, self.now);
                self.try_again(run, class, retry_after);
            }
        }
        self.note_cut(cuts);
    }

    fn note_cut(&mut self, before: u64) {
        if self.state.limiter.cuts() > before {
            self.report.cuts.push(self.now - self.start);
        }
    }

    fn end_turn(&mut self, run: usize) {
        let tools = self.dice.between(millis(50), millis(500));
        let state = &mut self.runs[run];
        *state = Run { turns: state.turns - 1, ..Run::default() };
        let more = state.turns > 0;
        self.state.leave();
        if more {
            self.at(self.now + tools, Event::Ask(run));
        }
    }

    fn try_again(&mut self, run: usize, class: FaultClass, retry_after: Option<Duration>) {
        let jitter = self.dice.share();
        let state = &mut self.runs[run];
        state.attempts += 1;
        state.tries += u32::from(class != FaultClass::RateLimit);
        match retry::delay(class, state.tries, state.attempts, retry_after, jitter) {
            Some(delay) => self.at(self.now + delay, Event::Again(run)),
            None => self.state.leave(),
        }
    }
}
