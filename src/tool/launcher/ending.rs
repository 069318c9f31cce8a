//! Puts what came of a process into words: its output, then how it ended, if there is more to say than "well".

use std::{fmt::Write, time::Duration};

use crate::{
    domain::call::Failure,
    tool::{
        Output,
        process::{Captured, End, Finished, ProcessLimits},
    },
};

const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;
/// What a shell adds to the number of the signal that ended its command.
const SIGNALLED_IN_SHELL: i32 = 128;

const CANCELLED: &str = "cancelled";

const SIGNALS: &[(i32, &str)] = &[
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (SIGKILL, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (15, "SIGTERM"),
    (SIGXCPU, "SIGXCPU"),
    (SIGXFSZ, "SIGXFSZ"),
    (31, "SIGSYS"),
];

/// Tells the model of a process that ran for at most `timeout` under `limits`.
pub(super) fn told(finished: Finished, timeout: Duration, limits: &ProcessLimits) -> Output {
    let Finished { end, output, left_behind, survivors, group: _, duration: _ } = finished;
    let mut text = in_lines(output);
    // Writing to a string cannot fail.
    match left_behind {
        0 => {}
        1 => text.push_str("[1 background process was ended]\n"),
        count => {
            let _ = writeln!(text, "[{count} background processes were ended]");
        }
    }
    if !survivors.is_empty() {
        let pids: Vec<String> = survivors.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "[could not be ended, by process id: {}]", pids.join(", "));
    }
    let (failure, how) = ended(end, timeout, limits);
    match how {
        Some(how) => {
            let _ = write!(text, "[{how}]");
        }
        None if text.is_empty() => text.push_str("[no output]"),
        None => {}
    }
    Output { text, failure, terminate: false }
}

/// The same of one that was cancelled while it started.
pub(super) fn cancelled(output: Captured) -> Output {
    Output::failed(Failure::Cancelled, format!("{}[{CANCELLED}]", in_lines(output)))
}

fn in_lines(Captured { mut text, .. }: Captured) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn ended(end: End, timeout: Duration, limits: &ProcessLimits) -> (Option<Failure>, Option<String>) {
    let (failure, how) = match end {
        End::Exited(0) => return (None, None),
        End::Exited(code) => {
            let why = limit_near(code - SIGNALLED_IN_SHELL, limits).unwrap_or_default();
            (Failure::Failed, format!("exit code {code}{why}"))
        }
        End::Signalled(signal) => {
            let name = SIGNALS.iter().find(|(number, _)| *number == signal);
            let name = name.map(|(_, name)| format!(" ({name})")).unwrap_or_default();
            let why = limit_near(signal, limits).unwrap_or_default();
            (Failure::Failed, format!("killed by signal {signal}{name}{why}"))
        }
        End::OutOfMemory => (Failure::Failed, "killed because memory ran out".to_owned()),
        End::TimedOut => (Failure::TimedOut, format!("timed out after {} s", timeout.as_secs_f64())),
        End::Cancelled => (Failure::Cancelled, CANCELLED.to_owned()),
        End::GuardLost => (Failure::Failed, "ended: the process that guards it was killed".to_owned()),
    };
    (Some(failure), Some(how))
}

/// The limit that a signal may come from. The kernel kills a process that has used up its processor time.
fn limit_near(signal: i32, limits: &ProcessLimits) -> Option<String> {
    match signal {
        SIGKILL | SIGXCPU => {
            limits.cpu.map(|cpu| format!("; the limit of processor time is {} s", cpu.as_secs_f64()))
        }
        SIGXFSZ => limits.file_bytes.map(|bytes| format!("; the limit of a file is {bytes} bytes")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::process::CommandGroup;

    fn finished(end: End, text: &str) -> Finished {
        let (bytes, lines) = (text.len() as u64, text.lines().count() as u64);
        Finished {
            end,
            output: Captured {
                text: text.to_owned(),
                bytes,
                lines,
                omitted: None,
                is_binary: false,
                spill: None,
            },
            left_behind: 0,
            survivors: Vec::new(),
            group: CommandGroup { pid: 1, start_time: 1, boot_id: String::new() },
            duration: Duration::ZERO,
        }
    }

    fn told_of(finished: Finished) -> (Option<Failure>, String) {
        let limits = ProcessLimits {
            cpu: Some(Duration::from_secs(10)),
            file_bytes: Some(1_000),
            ..ProcessLimits::default()
        };
        let Output { text, failure, terminate } = told(finished, Duration::from_millis(2_500), &limits);
        assert!(!terminate);
        (failure, text)
    }

    #[test]
    fn a_good_end_is_not_worth_a_word_unless_there_is_nothing_else() {
        assert_eq!(told_of(finished(End::Exited(0), "out\n")), (None, "out\n".to_owned()));
        assert_eq!(told_of(finished(End::Exited(0), "out")), (None, "out\n".to_owned()));
        assert_eq!(told_of(finished(End::Exited(0), "")), (None, "[no output]".to_owned()));
    }

    #[test]
    fn every_other_end_is_told_on_the_last_line() {
        let cases = [
            (End::Exited(3), Failure::Failed, "exit code 3"),
            (End::Exited(152), Failure::Failed, "exit code 152; the limit of processor time is 10 s"),
            (End::Exited(153), Failure::Failed, "exit code 153; the limit of a file is 1000 bytes"),
            (End::Signalled(11), Failure::Failed, "killed by signal 11 (SIGSEGV)"),
            (End::Signalled(40), Failure::Failed, "killed by signal 40"),
            (
                End::Signalled(9),
                Failure::Failed,
                "killed by signal 9 (SIGKILL); the limit of processor time is 10 s",
            ),
            (End::OutOfMemory, Failure::Failed, "killed because memory ran out"),
            (End::TimedOut, Failure::TimedOut, "timed out after 2.5 s"),
            (End::Cancelled, Failure::Cancelled, "cancelled"),
            (End::GuardLost, Failure::Failed, "ended: the process that guards it was killed"),
        ];
        for (end, failure, how) in cases {
            assert_eq!(told_of(finished(end, "out")), (Some(failure), format!("out\n[{how}]")));
        }
    }

    #[test]
    fn what_ran_on_in_the_background_is_told() {
        let mut left = finished(End::Exited(0), "up\n");
        left.left_behind = 1;
        assert_eq!(told_of(left).1, "up\n[1 background process was ended]\n");
        let mut left = finished(End::TimedOut, "");
        left.left_behind = 2;
        left.survivors = vec![12, 13];
        assert_eq!(
            told_of(left).1,
            "[2 background processes were ended]\n[could not be ended, by process id: 12, 13]\n[timed out after 2.5 s]"
        );
    }
}
