//! Finds and signals the processes that come from one process, through `/proc`.
//!
//! A look is a snapshot: who wants to be sure looks again until nothing is left. Between a look and the signal a
//! number cannot come to mean another process, because the kernel hands numbers out in a circle.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
};

use super::{GUARD_WORD, MARK};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// In clock ticks since boot; with the pid and the boot it names a process for good.
    pub start_time: u64,
    /// Ended, but not yet collected by its parent.
    pub ended: bool,
    /// Has the processor or the disk, or waits for one of them.
    pub busy: bool,
    /// Processor time that it has used, all its threads together.
    pub cpu_ticks: u64,
}

impl Process {
    pub(super) fn look_up(pid: i32) -> io::Result<Self> {
        parse_stat(&fs::read(format!("/proc/{pid}/stat"))?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Whether a process came of a command that some herder runs, however often it forked since: its guard is among its
/// ancestors, as long as it lives; and it can gain no rights, though this process can, or has the mark of a run that this
/// process does not come of. Nothing, if the process is not to be found.
///
/// The first two cannot be shaken off. Where this process can gain no rights either, one that has killed its guard and cleared
/// its environment is not told from others.
pub fn is_of_a_command(pid: i32) -> Option<bool> {
    let (own, process) = (std::process::id().cast_signed(), Process::look_up(pid).ok()?);
    let is_kept_down = can_gain_rights(pid) == Some(false) && can_gain_rights(own) == Some(true);
    if is_kept_down || mark_of(pid).is_some_and(|mark| mark_of(own) != Some(mark)) {
        return Some(true);
    }
    is_under_a_guard(process)
}

/// Whether a process is a guard or comes of one. Nothing, if it is gone or one of those above it is not to be seen.
fn is_under_a_guard(asked: Process) -> Option<bool> {
    let mut process = asked;
    while process.parent > 1 {
        if is_guard(process.pid) {
            return Some(true);
        }
        process = match Process::look_up(process.parent) {
            Ok(parent) => parent,
            // If it has ended, its children have another parent by now: a guard that lives, if there is one further up.
            Err(_) => match Process::look_up(process.pid) {
                Ok(again) if again.parent != process.parent => again,
                Ok(_) => return None,
                Err(_) => Process::look_up(asked.pid).ok()?,
            },
        };
    }
    Some(is_guard(process.pid))
}

/// Whether a process could gain rights by running a program; no command can, nor what it starts.
fn can_gain_rights(pid: i32) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let flag = status.lines().find_map(|line| line.strip_prefix("NoNewPrivs:"))?;
    Some(flag.trim() == "0")
}

/// Whether a process has `mark` (`NAME=value`) in its environment. Nothing, while it is becoming another program: the kernel then
/// shows no environment, or the beginning of one.
pub(super) fn has_mark(pid: i32, mark: &str) -> Option<bool> {
    // Another user's, or gone.
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return Some(false) };
    if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
        return Some(true);
    }
    let is_all = environment_size(pid) == Some(environment.len() as u64);
    is_all.then_some(false)
}

/// How large the environment of a process is. Nothing, while it is not laid out; the place of the code is set after that. The
/// kernel's own, and what is gone, have an empty one.
fn environment_size(pid: i32) -> Option<u64> {
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { return Some(0) };
    let text = String::from_utf8_lossy(&stat);
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let (memory, code, start, end) = (number(20)?, number(23)?, number(47)?, number(48)?);
    if memory == 0 { Some(0) } else { (code != 0).then(|| end.saturating_sub(start)) }
}

/// The run that a process was started for, as its environment says.
fn mark_of(pid: i32) -> Option<Vec<u8>> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    variables
        .find_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))
        .map(<[u8]>::to_vec)
}

pub(super) fn is_guard(pid: i32) -> bool {
    guard_arguments(pid).is_some()
}

/// Whether a process is a guard whose herder lives: it is still the child of the process that started it.
pub(super) fn serves_its_herder(process: &Process) -> bool {
    guard_arguments(process.pid).flatten() == Some(process.parent)
}

/// Of a guard: who started it, if it was told.
fn guard_arguments(pid: i32) -> Option<Option<i32>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut arguments = line.split(|byte| *byte == 0).skip(1);
    (arguments.next() == Some(GUARD_WORD.as_bytes()))
        .then(|| std::str::from_utf8(arguments.next()?).ok()?.parse().ok())
}

/// Every running process that `ancestor` is responsible for, itself excluded.
pub(super) fn descendants_of(ancestor: Pid) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in all_processes() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut parents = vec![ancestor.as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid);
            found.push(child);
        }
    }
    found.retain(|process| !process.ended);
    found
}

/// Signals whole groups, which no fork can slip out of, but spares `own_group`: members of that one singly.
pub(super) fn signal_all(processes: &[Process], signal: Signal, own_group: Pid) {
    let own_group = own_group.as_raw_nonzero().get();
    let groups: BTreeSet<i32> =
        processes.iter().map(|process| process.group).filter(|group| *group != own_group).collect();
    // A process that has just ended, or belongs to somebody else, is no reason to spare the others.
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
    for member in processes.iter().filter(|process| process.group == own_group) {
        if let Some(pid) = Pid::from_raw(member.pid) {
            let _ = kill_process(pid, signal);
        }
    }
}

pub(super) fn all_processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        .filter_map(|entry| parse_stat(&fs::read(entry.path().join("stat")).ok()?))
}

/// Reads `/proc/PID/stat`. The name in it may hold anything, blanks and brackets too, so fields count from its end.
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let text = String::from_utf8_lossy(stat);
    let (before, after) = (text.split_once(" (")?.0, text.rsplit_once(") ")?.1);
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse().ok();
    let count = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let state = *fields.first()?;
    Some(Process {
        pid: before.parse().ok()?,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        start_time: count(19)?,
        ended: matches!(state, "Z" | "X"),
        busy: matches!(state, "R" | "D"),
        cpu_ticks: count(11)? + count(12)?,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::Stdio,
    };

    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_does_not_shift_the_fields() {
        let stat = b"42 (a) S 1 (b) S 7 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 10";
        let expected = Process {
            pid: 42,
            parent: 7,
            group: 40,
            session: 39,
            start_time: 987_654,
            ended: false,
            busy: false,
            cpu_ticks: 5 + 6,
        };
        assert_eq!(parse_stat(stat), Some(expected));
    }

    #[test]
    fn what_has_or_waits_for_the_processor_or_the_disk_is_busy() {
        let is_busy = |state: &str| {
            let stat = format!("42 (a) {state} 7 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 10");
            parse_stat(stat.as_bytes()).unwrap().busy
        };
        assert_eq!(["R", "D", "S", "T", "I", "Z"].map(is_busy), [true, true, false, false, false, false]);
    }

    #[test]
    fn a_cut_off_line_is_no_process() {
        assert_eq!(parse_stat(b"42 (sh) S 7 40"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn what_has_the_mark_of_a_run_or_can_gain_no_rights_is_a_commands_without_any_guard() {
        let sleeping = |mark: Option<&str>| {
            let mut command = std::process::Command::new("sleep");
            let child =
                command.arg("600").env_remove(MARK).envs(mark.map(|mark| (MARK, mark))).spawn().unwrap();
            // The kernel shows no environment for a moment while a program begins.
            while fs::read(format!("/proc/{}/environ", child.id())).unwrap().is_empty() {
                std::thread::yield_now();
            }
            child
        };
        let is_of_a_command = |mut child: std::process::Child| {
            let told = super::is_of_a_command(child.id().cast_signed());
            child.kill().unwrap();
            child.wait().unwrap();
            told
        };
        if std::env::var_os(MARK).is_some() || can_gain_rights(std::process::id().cast_signed()) != Some(true)
        {
            return;
        }
        assert_eq!(is_of_a_command(sleeping(None)), Some(false));
        assert_eq!(is_of_a_command(sleeping(Some("a-run"))), Some(true));
        // Of a thread; what it starts has it, too.
        let kept_down = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            sleeping(None)
        });
        assert_eq!(is_of_a_command(kept_down.join().unwrap()), Some(true));
    }

    #[test]
    fn a_process_whose_parent_has_just_ended_is_still_told_from_a_commands() {
        let own = Process::look_up(std::process::id().cast_signed()).unwrap();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "sleep 600 >&- & echo $!; read word"]);
        let mut parent = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut number = String::new();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut number).unwrap();
        let child = Process::look_up(number.trim().parse().unwrap()).unwrap();
        assert_eq!(child.parent, parent.id().cast_signed());
        drop(parent.stdin.take());
        parent.wait().unwrap();
        let told = is_under_a_guard(child);
        signal_all(&[child], Signal::KILL, Pid::from_raw(child.group).unwrap());
        assert_eq!(told, is_under_a_guard(own));
        assert_ne!(told, None);
    }

    #[test]
    fn a_process_that_has_ended_is_told_neither_way() {
        let mut ended = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::look_up(ended.id().cast_signed()).unwrap();
        ended.kill().unwrap();
        ended.wait().unwrap();
        assert_eq!(is_under_a_guard(Process { parent: process.pid, ..process }), None);
    }

    #[test]
    fn what_becomes_one_program_after_another_is_at_no_time_without_its_mark() {
        let mark = format!("{MARK}=a-run");
        let script = r#"exec sh -c "$0" "$0""#;
        let mut child = std::process::Command::new("sh");
        let mut child = child.args(["-c", script, script]).env(MARK, "a-run").spawn().unwrap();
        let pid = child.id().cast_signed();
        while has_mark(pid, &mark) != Some(true) {
            std::thread::yield_now();
        }
        let told: BTreeSet<_> = (0..20_000).map(|_| has_mark(pid, &mark)).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!told.contains(&Some(false)), "{told:?}");
    }

    #[test]
    fn what_has_no_environment_has_no_mark() {
        let mut child = std::process::Command::new("sleep").arg("600").env_clear().spawn().unwrap();
        while has_mark(child.id().cast_signed(), MARK).is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        assert_eq!(has_mark(child.id().cast_signed(), MARK), Some(false));
        child.wait().unwrap();
        assert_eq!(has_mark(child.id().cast_signed(), MARK), Some(false));
    }

    #[test]
    fn a_process_finds_itself() {
        let own = std::process::id() as i32;
        assert_eq!(Process::look_up(own).unwrap().pid, own);
    }
}
