//! One event as one line for people, in colour where it helps.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::progress::{short, took};
use crate::{
    clock::{Clock as _, SystemClock},
    domain::{
        call::Failure,
        event::{
            ApprovalRequested, ApprovalResolved, Envelope, Event, Fact, Grant, InputKind, ParkReason,
            RestartCause,
        },
        id::{Pos, RunId, Seq},
        outcome::Outcome,
        policy::Verdict,
        time::Timestamp,
    },
};

/// Characters of somebody's words that a line shows.
const SHOWN: usize = 100;

fn instant(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_microsecond(at.as_micros()).ok()
}

/// Reads the public JSON of an event. Nothing, if it is of a kind that this version does not know.
pub fn read_event(json: &str) -> Option<Envelope> {
    #[derive(Deserialize)]
    struct Told<'a> {
        v: u16,
        pos: Pos,
        run: RunId,
        seq: Seq,
        at: String,
        turn: u32,
        kind: String,
        #[serde(borrow)]
        data: &'a RawValue,
    }
    let Told { v, pos, run, seq, at, turn, kind, data } = serde_json::from_str(json).ok()?;
    let event = Event::from_parts(&kind, data.get()).ok()?;
    let at = Timestamp::from_micros(at.parse::<jiff::Timestamp>().ok()?.as_microsecond());
    Some(Envelope { v, pos, run, seq, fact: Fact { at, turn, event } })
}

/// Whether a line has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Colored,
}

/// How something is meant, for whoever chooses colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Dim,
    Good,
    Bad,
    Notable,
    Usual,
}

impl Paint {
    pub(super) fn on(self, tone: Tone, text: &str) -> Cow<'_, str> {
        let code = match (self, tone) {
            (Self::Plain, _) | (Self::Colored, Tone::Usual) => return text.into(),
            (Self::Colored, Tone::Dim) => "2",
            (Self::Colored, Tone::Good) => "32",
            (Self::Colored, Tone::Bad) => "31",
            (Self::Colored, Tone::Notable) => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m").into()
    }
}

/// A time that is waited for, with its day if that is not today.
fn due(at: Timestamp, now: Timestamp) -> String {
    let (Some(at), Some(now)) = (instant(at), instant(now)) else { return String::new() };
    let is_of_today = at.strftime("%F").to_string() == now.strftime("%F").to_string();
    at.strftime(if is_of_today { "%H:%M:%S" } else { "%F %H:%M:%S" }).to_string()
}

/// An event as a line for people: time, the end of the run's id, turn, kind, what happened.
pub fn line(envelope: &Envelope, paint: Paint) -> String {
    let Envelope { run, fact, .. } = envelope;
    let time = instant(fact.at).map_or_else(String::new, |at| at.strftime("%H:%M:%S%.3f").to_string());
    let run = run.to_string();
    // The end tells runs of one moment apart; the beginning is the moment.
    let run = &run[run.len() - 8..];
    let head = format!("{time} {run} {:>3}", fact.turn);
    let (tone, text) = describe(&fact.event);
    let kind = format!("{:<16}", fact.event.kind());
    format!("{} {} {text}", paint.on(Tone::Dim, &head), paint.on(tone, &kind)).trim_end().to_owned()
}

/// What happened, in words on one line.
pub(super) fn describe(event: &Event) -> (Tone, String) {
    match event {
        Event::Submitted(spec) => {
            let id = spec.task_id.as_ref().map_or_else(String::new, |id| format!("{id}: "));
            (Tone::Usual, format!("{id}{}", quote(&spec.task)))
        }
        Event::RunStart(start) => (Tone::Usual, format!("{} with {}", start.model, names(&start.tools))),
        Event::TurnStart(_) => (Tone::Dim, String::new()),
        Event::Message(reply) => {
            let asked: Vec<_> = reply.calls.iter().map(|call| call.name.clone()).collect();
            let said = (!reply.text.is_empty()).then(|| quote(&reply.text));
            let asks = (!asked.is_empty()).then(|| format!("asks for {}", names(&asked)));
            let used = format!(
                "({}, {} tokens in, {} out)",
                reply.stop,
                short(reply.usage.input),
                short(reply.usage.output)
            );
            (Tone::Usual, [said, asks, Some(used)].into_iter().flatten().collect::<Vec<_>>().join(" "))
        }
        Event::Decision(decision) => {
            let (tone, verdict) = match decision.verdict {
                Verdict::Allow => (Tone::Dim, "allowed"),
                Verdict::Ask => (Tone::Notable, "a person decides"),
                Verdict::Deny => (Tone::Bad, "denied"),
            };
            (tone, format!("{} {verdict}: {}", decision.call, decision.rule))
        }
        Event::ApprovalRequested(request) => {
            let ApprovalRequested { approval, call, rule, expires_at, .. } = &**request;
            let expires = expires_at.map_or_else(String::new, |at| {
                format!("; denied by itself at {}", due(at, SystemClock.now()))
            });
            (Tone::Notable, format!("approval {approval} of {call}: {rule}{expires}"))
        }
        Event::ApprovalResolved(resolved) => {
            let ApprovalResolved { approval, call, resolution, command, by, reason, grant } = &**resolved;
            let how = resolution.as_str();
            let by = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let command = command.as_ref().map_or_else(String::new, |id| format!(" (command {id})"));
            let grant = grant.as_ref().map_or_else(String::new, |Grant { tool, pattern }| {
                format!(", as is every {tool} that fits {}", quote(pattern))
            });
            let reason = reason.as_ref().map_or_else(String::new, |said| format!(": {}", quote(said)));
            (Tone::Notable, format!("approval {approval} of {call} {how}{by}{command}{grant}{reason}"))
        }
        Event::CommandGroup(group) => (Tone::Dim, format!("{} runs as process {}", group.call, group.pid)),
        Event::CallStarted(started) => {
            let path = started
                .change
                .as_ref()
                .map_or_else(String::new, |change| format!(" changes {}", change.path));
            (Tone::Dim, format!("{}{path}", started.call))
        }
        Event::Result(result) => {
            let verdict = result.failure.map_or(if result.ok { "ok" } else { "failed" }, Failure::as_str);
            let tone = if result.ok { Tone::Good } else { Tone::Bad };
            (tone, format!("{} {verdict}: {}", result.call, quote(&result.output)))
        }
        Event::TurnEnd(end) => (Tone::Dim, counted(end.calls as usize, "call")),
        Event::InputQueued(input) => {
            let when = match input.when {
                InputKind::Steer => "steer",
                InputKind::FollowUp => "follow-up",
            };
            (Tone::Notable, format!("{when} {}: {}", input.input, quote(&input.text)))
        }
        Event::InputClaimed(claimed) => (Tone::Notable, claimed.input.to_string()),
        Event::ModelRetry(retry) => {
            let until = due(retry.not_before, SystemClock.now());
            (Tone::Notable, format!("{}: {}; again at {until}", retry.class, quote(&retry.error)))
        }
        Event::RequestSent(sent) => (Tone::Dim, format!("may use {} tokens", sent.usage.total())),
        Event::RequestLost(lost) => (Tone::Notable, format!("may have used {} tokens", lost.usage.total())),
        Event::ModelSwitched(switched) => {
            let text = format!("{} instead of {}: {}", switched.to, switched.from, quote(&switched.error));
            (Tone::Notable, text)
        }
        Event::Correction(correction) => (Tone::Notable, quote(&correction.text)),
        Event::CancelRequested(cancel) => (Tone::Notable, format!("to end as {}", cancel.outcome)),
        Event::LimitsSet(limits) => (Tone::Notable, serde_json::to_string(limits).unwrap_or_default()),
        Event::Paused(_) => (Tone::Notable, "to be held before its next request".to_owned()),
        Event::Resumed(_) => (Tone::Notable, "to go on".to_owned()),
        Event::Parked(parked) => {
            let waits = match parked.reason {
                ParkReason::Paused => "waits to be resumed",
                ParkReason::RateLimit => "waits for the time that the provider named",
                ParkReason::Quota => "waits for quota at the provider",
                ParkReason::Auth => "waits for a key that the provider accepts",
                ParkReason::Budget => "waits for a larger budget",
                ParkReason::Approval => "waits for a person to decide",
            };
            (Tone::Notable, waits.to_owned())
        }
        Event::Unparked(_) => (Tone::Notable, "goes on".to_owned()),
        Event::Interrupted(_) => (Tone::Notable, "goes on at the next start".to_owned()),
        Event::Restart(restart) => {
            let cause = match restart.cause {
                RestartCause::Process => "the process had ended",
                RestartCause::Actor => "its actor had died",
                RestartCause::Import => "it was taken here from a file",
            };
            let error =
                restart.error.as_ref().map_or_else(String::new, |error| format!(": {}", quote(error)));
            (Tone::Notable, format!("{cause}{error}"))
        }
        Event::RunEnd(end) => {
            let tone = if matches!(end.outcome, Outcome::Done) { Tone::Good } else { Tone::Bad };
            let error = end.error.as_ref().map_or_else(String::new, |error| format!(": {}", quote(error)));
            let took = took(std::time::Duration::from_micros(end.duration_us));
            let cost = end.usage.cost.map_or_else(String::new, |cost| format!(", ${:.4}", cost.usd()));
            let total = short(end.usage.total());
            (
                tone,
                format!(
                    "{}{error} ({}, {}, {total} tokens{cost}, {took})",
                    end.outcome,
                    counted(end.turns as usize, "turn"),
                    counted(end.calls as usize, "call")
                ),
            )
        }
    }
}

/// A number of things: `1 call`, `2 calls`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn names(names: &[std::sync::Arc<str>]) -> String {
    if names.is_empty() { "no tools".to_owned() } else { names.join(", ") }
}

/// Somebody's words on one line: bounded, and without anything that a terminal would obey.
pub(super) fn quote(text: &str) -> String {
    format!("\"{}\"", one_line(text, SHOWN))
}

/// The beginning of a text on one line, `width` characters at most, without anything that a terminal would obey.
pub(super) fn one_line(text: &str, width: usize) -> String {
    let text = text.trim();
    let cut = text.chars().nth(width).is_some();
    let kept = if cut { width.saturating_sub(1) } else { width };
    let mut shown: String = text.chars().take(kept).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if cut {
        shown.push('…');
    }
    shown
}

/// A text of several lines without anything else that a terminal would obey.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if text.contains(obeyed) { text.replace(obeyed, " ").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::hub::EventJson;

    fn envelope(kind: &str, data: &str) -> Envelope {
        let event = Event::from_parts(kind, data).expect("an event");
        let at = Timestamp::from_micros(1_764_489_600_123_456);
        let run = RunId::from_bytes([0xab; 16]);
        Envelope { v: 1, pos: Pos::new(9), run, seq: Seq::new(3), fact: Fact { at, turn: 1, event } }
    }

    #[test]
    fn each_kind_of_event_is_one_line() {
        let samples = [
            (
                "submitted",
                r#"{"task": "Do\nit", "task_id": "a", "attempt": 1, "model": "m", "workspace": "/w"}"#,
            ),
            ("run_start", r#"{"model": "openai:m", "tools": ["read", "edit"]}"#),
            ("turn_start", "{}"),
            (
                "message",
                r#"{"text": "Let me see.", "calls": [{"id": "c1", "name": "read", "arguments": {}}],
                    "stop": "tool_calls", "usage": {"input": 1200, "output": 30}}"#,
            ),
            (
                "decision",
                r#"{"call": "c1", "verdict": "deny", "rule": "no person can be asked", "effect": "outside"}"#,
            ),
            ("approval_requested", r#"{"approval": 1, "call": "c1", "rule": "writes are asked about"}"#),
            (
                "approval_resolved",
                r#"{"approval": 1, "call": "c1", "resolution": "rejected", "command": "k1", "by": "ada",
                    "reason": "not\nthis", "grant": {"tool": "bash", "pattern": "ls"}}"#,
            ),
            ("call_started", r#"{"call": "c1", "change": {"path": "/w/a", "after": "00"}}"#),
            ("command_group", r#"{"call": "c1", "pid": 42, "started": 1, "boot": "b"}"#),
            ("result", r#"{"call": "c1", "ok": false, "output": "\u001b[2Jgone", "failure": "failed"}"#),
            ("turn_end", r#"{"calls": 1}"#),
            ("input_queued", r#"{"input": 1, "when": "steer", "text": "faster"}"#),
            ("input_claimed", r#"{"input": 1}"#),
            (
                "model_retry",
                r#"{"attempt": 1, "class": "rate_limit", "error": "429", "not_before": 1764489601000000}"#,
            ),
            ("request_sent", r#"{"attempt": 1, "usage": {"input": 10, "output": 5}}"#),
            ("request_lost", r#"{"usage": {"input": 10, "output": 5}}"#),
            (
                "model_switched",
                r#"{"from": "openai:m", "to": "local", "class": "quota", "error": "HTTP 402: no credit"}"#,
            ),
            ("correction", r#"{"text": "Your answer is no JSON."}"#),
            ("limits_set", r#"{"max_turns": 80}"#),
            ("cancel_requested", r#"{"outcome": "budget", "detail": "wall_time"}"#),
            ("paused", "{}"),
            ("resumed", "{}"),
            ("parked", r#"{"reason": "paused"}"#),
            ("unparked", "{}"),
            ("interrupted", "{}"),
            ("restart", r#"{"cause": "actor", "error": "panicked"}"#),
            (
                "run_end",
                r#"{"outcome": "done", "turns": 2, "calls": 1, "usage": {"input": 2000, "output": 50, "cost": 1500000},
                    "queued_us": 1, "duration_us": 65000000, "active_us": 1}"#,
            ),
        ];
        assert_eq!(samples.map(|(kind, _)| kind), Event::KINDS, "a kind has no sample");
        let lines: Vec<_> = samples.map(|(kind, data)| line(&envelope(kind, data), Paint::Plain)).into();
        assert!(lines.iter().all(|line| !line.contains(char::is_control)));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn a_time_that_is_waited_for_has_its_day_unless_that_is_today() {
        let at = |text: &str| {
            Timestamp::from_micros(text.parse::<jiff::Timestamp>().expect("a time").as_microsecond())
        };
        let now = at("2026-11-30T18:45:00Z");
        assert_eq!(due(at("2026-11-30T18:45:09Z"), now), "18:45:09");
        assert_eq!(due(at("2026-12-01T18:45:09Z"), now), "2026-12-01 18:45:09");
    }

    #[test]
    fn colours_are_there_only_where_they_are_wanted() {
        let end = envelope("interrupted", "{}");
        assert!(!line(&end, Paint::Plain).contains('\x1b'));
        assert!(line(&end, Paint::Colored).contains("\x1b[33minterrupted"));
    }

    #[test]
    fn the_public_json_of_an_event_can_be_read_again() {
        let json = serde_json::to_string(&EventJson(&envelope("turn_end", r#"{"calls": 1}"#))).expect("JSON");
        assert_eq!(
            json,
            r#"{"v":1,"pos":9,"run":"abababab-abab-abab-abab-abababababab","seq":3,"at":"2025-11-30T08:00:00.123456Z","turn":1,"kind":"turn_end","data":{"calls":1}}"#
        );
        let read = read_event(&json).expect("an event");
        assert_eq!(serde_json::to_string(&EventJson(&read)).expect("JSON"), json);
        assert!(read_event(&json.replace("turn_end", "later_kind")).is_none());
    }
}
