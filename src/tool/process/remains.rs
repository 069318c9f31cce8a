//! Ends what is left of commands whose herder is gone.
//!
//! Mostly nothing is: a guard ends its command when herder does. This is for when the guard is gone too, or is at it
//! still. What left the command's session is known by its environment, and what such a process has started by that. A
//! process that only has the number of one that was recorded is left alone, and so is the command of another herder that is
//! at work: it may have a copy of the same run. What left the session, has emptied its
//! environment and has no parent left cannot be told from anybody else's, and is not ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    CommandGroup, boot_id,
    descendants::{Process, all_processes, has_mark, is_guard, serves_its_herder},
    guard::{GIVE_UP, KILL_EVERY},
    respite::Respite,
};

/// Ends the processes of the sessions that `leaders` led and those that have `mark` (`NAME=value`) in their environment,
/// with all that they have started. Gives those that are there when it gives up. Blocks, as long as they need to end.
pub fn end_remains(leaders: &[CommandGroup], mark: &str) -> Vec<u32> {
    let boot = boot_id();
    let leaders: Vec<&CommandGroup> = leaders.iter().filter(|leader| leader.boot_id == boot).collect();
    let guards: BTreeSet<i32> = leaders.iter().map(|leader| leader.pid.cast_signed()).collect();
    let mut look = remains(&leaders, mark);
    // A guard that lives is ending its command, and ends with it.
    for process in look.found.iter().filter(|process| !guards.contains(&process.pid)) {
        signal(process, Signal::TERM);
        signal(process, Signal::CONT);
    }
    let mut respite = Some(Respite::new(Instant::now()));
    while let Some(left) = respite.filter(|_| !look.shows_the_end()) {
        thread::sleep(left.next_look().saturating_duration_since(Instant::now()));
        look = remains(&leaders, mark);
        respite = left.after(&look.found, Instant::now());
    }
    let forced = Instant::now();
    while !look.shows_the_end() && forced.elapsed() < GIVE_UP {
        look.found.iter().for_each(|process| signal(process, Signal::KILL));
        thread::sleep(KILL_EVERY);
        look = remains(&leaders, mark);
    }
    look.found.iter().map(|process| process.pid.cast_unsigned()).collect()
}

/// What a look at all processes has shown.
#[derive(Default)]
struct Look {
    found: Vec<Process>,
    /// Whether there may be more of them, which were just becoming other programs.
    may_have_missed: bool,
}

impl Look {
    const fn shows_the_end(&self) -> bool {
        self.found.is_empty() && !self.may_have_missed
    }
}

/// Those of `asked` that `mark` tells from others; where one of them may have it, `may_have_missed` becomes true.
fn marked<'a>(
    asked: impl IntoIterator<Item = &'a Process>,
    own: &BTreeSet<i32>,
    mark: &str,
    may_have_missed: &mut bool,
) -> BTreeSet<i32> {
    let mut tell = |pid: i32| {
        let told = has_mark(pid, mark);
        *may_have_missed |= told.is_none();
        told
    };
    // Where a shell that herder was started from has it, whatever else was started there has it too.
    if own.iter().any(|pid| tell(*pid) != Some(false)) {
        return BTreeSet::new();
    }
    asked.into_iter().map(|process| process.pid).filter(|pid| tell(*pid) == Some(true)).collect()
}

/// Whether a guard with `mark` in its environment is at work though its herder is gone: its command has the time to come to
/// its end. Blocks.
pub fn is_one_abandoned(mark: &str) -> bool {
    let is_one = |process: &Process| {
        is_guard(process.pid) && !serves_its_herder(process) && has_mark(process.pid, mark) == Some(true)
    };
    all_processes().any(|process| !process.ended && is_one(&process))
}

/// Kills what is left of a command whose guard is gone: the session that it led, and what has `mark` in its environment and
/// no guard above it. Blocks, for a second at the most.
pub(super) fn kill_unguarded(leader: i32, mark: Option<&str>) {
    const ROUNDS: u32 = 100;
    for _ in 0..ROUNDS {
        let all: Vec<Process> = all_processes().filter(|process| !process.ended).collect();
        let (own, known) = (ancestry(&all), by_number(&all));
        let mut look = Look::default();
        let marked =
            mark.map_or_else(BTreeSet::new, |mark| marked(&all, &own, mark, &mut look.may_have_missed));
        let is_left = |process: &Process| {
            process.session == leader || marked.contains(&process.pid) && !is_guarded(process, &known, &own)
        };
        look.found = all.iter().copied().filter(is_left).collect();
        if look.shows_the_end() {
            return;
        }
        look.found.iter().for_each(|process| signal(process, Signal::KILL));
        thread::sleep(KILL_EVERY);
    }
}

/// Whether a guard stands over a process, or is it, beside those that this process comes from.
fn is_guarded(process: &Process, known: &BTreeMap<i32, Process>, own: &BTreeSet<i32>) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = Some(process);
    while let Some(process) = next.filter(|process| !own.contains(&process.pid) && seen.insert(process.pid)) {
        if is_guard(process.pid) {
            return true;
        }
        next = known.get(&process.parent);
    }
    false
}

fn by_number(all: &[Process]) -> BTreeMap<i32, Process> {
    all.iter().map(|process| (process.pid, *process)).collect()
}

fn signal(process: &Process, signal: Signal) {
    if let Some(pid) = Pid::from_raw(process.pid) {
        // One that has just ended, or belongs to somebody else, is no reason to spare the others.
        let _ = kill_process(pid, signal);
    }
}

/// What is there of them now.
fn remains(leaders: &[&CommandGroup], mark: &str) -> Look {
    let mut look = Look::default();
    let Some(oldest) = leaders.iter().map(|leader| leader.start_time).min() else { return look };
    let all: Vec<Process> = all_processes().filter(|process| !process.ended).collect();
    let own = ancestry(&all);
    let since = all.iter().filter(|process| process.start_time >= oldest);
    let marked = marked(since, &own, mark, &mut look.may_have_missed);
    // A number is not given to another session as long as one process is in it.
    let sessions: BTreeSet<i32> = leaders
        .iter()
        .map(|leader| (leader.pid.cast_signed(), leader.start_time))
        .filter(|(pid, started)| {
            let leads = |process: &Process| process.pid == *pid && process.start_time == *started;
            all.iter()
                .any(|process| leads(process) || process.session == *pid && marked.contains(&process.pid))
        })
        .map(|(pid, _)| pid)
        .collect();
    let mut found: BTreeSet<i32> = all
        .iter()
        .filter(|process| sessions.contains(&process.session) || marked.contains(&process.pid))
        .map(|process| process.pid)
        .collect();
    found.retain(|pid| !own.contains(pid));
    loop {
        let known = found.len();
        let children = all.iter().filter(|process| found.contains(&process.parent)).map(|child| child.pid);
        found.extend(children.filter(|pid| !own.contains(pid)).collect::<Vec<_>>());
        if found.len() == known {
            break;
        }
    }
    let known = by_number(&all);
    let is_left = |process: &Process| found.contains(&process.pid) && !is_of_another(process, &known, &own);
    look.found = all.iter().copied().filter(is_left).collect();
    look
}

/// Whether another herder, which lives, has a guard over a process. One that this process itself comes from does not count:
/// whatever a herder within a command leaves behind is beneath it.
fn is_of_another(process: &Process, known: &BTreeMap<i32, Process>, own: &BTreeSet<i32>) -> bool {
    let this = std::process::id().cast_signed();
    let mut seen = BTreeSet::new();
    let mut next = Some(process);
    while let Some(process) = next.filter(|process| !own.contains(&process.pid) && seen.insert(process.pid)) {
        if process.parent != this && serves_its_herder(process) {
            return true;
        }
        next = known.get(&process.parent);
    }
    false
}

/// This process, and those that it comes from: herder may itself be the command of another.
fn ancestry(all: &[Process]) -> BTreeSet<i32> {
    let mut own = BTreeSet::new();
    let mut next = Some(std::process::id().cast_signed());
    while let Some(pid) = next.filter(|pid| own.insert(*pid)) {
        next = all.iter().find(|process| process.pid == pid).map(|process| process.parent);
    }
    own
}
