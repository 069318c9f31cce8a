//! A run's conversation and what its tools do, as a person follows it: from the events of record, and from the model's words
//! as they come.
//!
//! Words that were shown as they came are not shown again when their message is of record. Pure: an event in, text out.

use serde::Deserialize;

use super::{
    live::Ahead,
    render::{Paint, Tone, describe, harmless, one_line, read_event},
};
use crate::{
    daemon::client,
    domain::{
        call::Failure,
        event::{Envelope, Event},
        id::RunId,
        policy::Verdict,
    },
};

/// Lines of a tool's output that are shown.
const LINES: usize = 12;

/// Characters of such a line.
const WIDTH: usize = 200;

/// How the text of several runs is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    /// There is one run.
    None,
    /// Each line begins with the end of its run's id.
    Run,
}

/// Turns events into text.
pub(super) struct Talk {
    paint: Paint,
    heads: Heads,
    ahead: Ahead<(Live, String)>,
    /// The model's words of the running turn, as they came.
    heard: String,
    /// Whether the line is not ended, and what it is of.
    midline: Option<Live>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Live {
    Text,
    Reasoning,
}

impl Talk {
    pub(super) const fn new(paint: Paint, heads: Heads) -> Self {
        Self { paint, heads, ahead: Ahead::new(), heard: String::new(), midline: None }
    }

    /// What is to be written for an event, ends of lines included.
    pub(super) fn text(&mut self, event: &client::Event) -> String {
        match event.name.as_str() {
            "text" => self.hear(Live::Text, &event.data),
            "reasoning" => self.hear(Live::Reasoning, &event.data),
            // Some words were missed: the message is shown as a whole.
            "lagged" => {
                self.heard.push('\u{fffd}');
                String::new()
            }
            _ => match read_event(&event.data) {
                Some(envelope) => {
                    let text = self.of_record(&envelope);
                    let is_message = matches!(envelope.fact.event, Event::Message(_));
                    let due = self.ahead.reach(envelope.fact.turn, is_message);
                    due.into_iter().fold(text, |text, (kind, words)| text + &self.live(kind, &words))
                }
                None => self.block(None, &format!("{}: {}", event.name, one_line(&event.data, WIDTH))),
            },
        }
    }

    fn hear(&mut self, kind: Live, data: &str) -> String {
        #[derive(Deserialize)]
        struct Words {
            turn: u32,
            text: String,
        }
        let Ok(Words { turn, text }) = serde_json::from_str(data) else { return String::new() };
        let due = self.ahead.hear(turn, (kind, text));
        due.map_or_else(String::new, |(kind, text)| self.live(kind, &text))
    }

    fn live(&mut self, kind: Live, text: &str) -> String {
        let start = if self.midline.is_some_and(|before| before != kind) { "\n" } else { "" };
        self.midline = (!text.ends_with('\n')).then_some(kind);
        let tone = match kind {
            Live::Text => {
                self.heard.push_str(text);
                Tone::Usual
            }
            Live::Reasoning => Tone::Dim,
        };
        format!("{start}{}", self.paint.on(tone, &harmless(text)))
    }

    fn of_record(&mut self, envelope: &Envelope) -> String {
        let text = match &envelope.fact.event {
            Event::Submitted(spec) => {
                let id = spec.task_id.as_deref().map_or_else(String::new, |id| format!(" {id}"));
                let head = format!("run {}{id}, {}, in {}", envelope.run, spec.model, spec.workspace);
                format!("{}\n{}", self.paint.on(Tone::Dim, &head), harmless(&spec.task))
            }
            Event::Message(reply) => {
                let heard = std::mem::take(&mut self.heard);
                let mut parts = Vec::new();
                if !reply.text.is_empty() && *heard != *reply.text {
                    parts.push(harmless(&reply.text).into_owned());
                }
                parts.extend(reply.calls.iter().map(|call| {
                    let name = self.paint.on(Tone::Notable, &call.name).into_owned();
                    format!("→ {name} {}", one_line(call.arguments.as_str(), WIDTH))
                }));
                parts.join("\n")
            }
            Event::Result(result) => {
                let tone = if result.ok { Tone::Good } else { Tone::Bad };
                let how = result.failure.map_or(if result.ok { "ok" } else { "failed" }, Failure::as_str);
                format!("← {}{}", self.paint.on(tone, how), self.output(&result.output))
            }
            Event::Decision(decision) if decision.verdict == Verdict::Allow => return String::new(),
            Event::RunStart(_)
            | Event::TurnStart(_)
            | Event::TurnEnd(_)
            | Event::CallStarted(_)
            | Event::CommandGroup(_)
            | Event::InputClaimed(_)
            | Event::RequestSent(_) => return String::new(),
            event @ (Event::Decision(_)
            | Event::ApprovalRequested(_)
            | Event::ApprovalResolved(_)
            | Event::InputQueued(_)
            | Event::ModelRetry(_)
            | Event::RequestLost(_)
            | Event::ModelSwitched(_)
            | Event::Correction(_)
            | Event::LimitsSet(_)
            | Event::CancelRequested(_)
            | Event::Paused(_)
            | Event::Resumed(_)
            | Event::Parked(_)
            | Event::Unparked(_)
            | Event::Interrupted(_)
            | Event::Restart(_)
            | Event::RunEnd(_)) => {
                let (tone, text) = describe(event);
                format!("{} {text}", self.paint.on(tone, event.kind()))
            }
        };
        self.block(Some(envelope.run), &text)
    }

    /// Lines of their own, whatever was being said.
    fn block(&mut self, run: Option<RunId>, text: &str) -> String {
        let start = if self.midline.take().is_some() { "\n" } else { "" };
        if text.is_empty() {
            return start.to_owned();
        }
        match (self.heads, run) {
            (Heads::Run, Some(run)) => {
                let run = run.to_string();
                let head = self.paint.on(Tone::Dim, &run[run.len() - 8..]).into_owned();
                let lines: String = text.lines().map(|line| format!("{head} {line}\n")).collect();
                format!("{start}{lines}")
            }
            (Heads::Run, None) | (Heads::None, _) => format!("{start}{text}\n"),
        }
    }

    fn output(&self, output: &str) -> String {
        let count = output.lines().count();
        let shown = output.lines().take(LINES).map(|line| {
            let indented = format!("  {}", harmless(&line.chars().take(WIDTH).collect::<String>()));
            format!("\n{}", self.paint.on(Tone::Dim, &indented))
        });
        let more = match count.saturating_sub(LINES) {
            0 => String::new(),
            more => format!("\n  {}", self.paint.on(Tone::Dim, &format!("({more} more lines)"))),
        };
        format!("{}{more}", shown.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(kind: &str, data: Value) -> client::Event {
        let data = json!({"v": 1, "pos": 1, "run": "abababab-abab-abab-abab-abababababab", "seq": 1,
            "at": "2025-11-30T08:00:00Z", "turn": 1, "kind": kind, "data": data});
        client::Event { id: Some(1), name: kind.to_owned(), data: data.to_string() }
    }

    fn live(name: &str, text: &str) -> client::Event {
        let data = json!({"run": "ab", "turn": 1, "text": text}).to_string();
        client::Event { id: None, name: name.to_owned(), data }
    }

    fn message(text: &str) -> client::Event {
        event(
            "message",
            json!({"text": text, "calls": [{"id": "c1", "name": "read", "arguments": {"path": "a"}}],
            "stop": "tool_calls", "usage": {"input": 1, "output": 1}}),
        )
    }

    fn talk(heads: Heads, events: &[client::Event]) -> String {
        let mut talk = Talk::new(Paint::Plain, heads);
        events.iter().map(|event| talk.text(event)).collect()
    }

    #[test]
    fn words_that_were_heard_are_not_repeated() {
        let heard = [
            event("turn_start", json!({})),
            live("reasoning", "hm"),
            live("text", "Let me"),
            live("text", " see."),
            message("Let me see."),
            live("text", "late"),
        ];
        assert_eq!(talk(Heads::None, &heard), "hm\nLet me see.\n→ read {\"path\":\"a\"}\n");
    }

    #[test]
    fn words_of_a_turn_that_the_log_has_not_come_to_wait_for_it() {
        let early = [live("text", "Let me"), event("turn_start", json!({})), live("text", " see.")];
        assert_eq!(talk(Heads::None, &early), "Let me see.");
        let result = event("result", json!({"call": "c1", "ok": true, "output": "x"}));
        let next = json!({"run": "ab", "turn": 2, "text": "So"}).to_string();
        let next = client::Event { id: None, name: "text".to_owned(), data: next };
        let mut start = event("turn_start", json!({}));
        start.data = start.data.replace("\"turn\":1", "\"turn\":2");
        assert_eq!(talk(Heads::None, &[next, result, start]), "← ok\n  x\nSo");
    }

    #[test]
    fn words_that_were_missed_are_shown_with_their_message() {
        let missed = [
            event("turn_start", json!({})),
            live("text", "Let"),
            live("lagged", ""),
            live("text", "see."),
            message("Let me see."),
        ];
        assert_eq!(talk(Heads::None, &missed), "Letsee.\nLet me see.\n→ read {\"path\":\"a\"}\n");
        assert_eq!(talk(Heads::None, &[message("Hello")]), "Hello\n→ read {\"path\":\"a\"}\n");
    }

    #[test]
    fn a_long_output_is_cut_and_a_terminal_obeys_nothing_in_it() {
        let output = "\u{1b}[2J\n".repeat(20);
        let result = event("result", json!({"call": "c1", "ok": true, "output": output}));
        let text = talk(Heads::Run, &[result]);
        assert_eq!(text.lines().count(), 1 + LINES + 1);
        assert!(text.lines().all(|line| line.starts_with("abababab ")), "{text}");
        assert!(!text.contains('\u{1b}') && text.ends_with("(8 more lines)\n"), "{text}");
    }

    #[test]
    fn what_nobody_needs_to_see_is_left_out() {
        let quiet = [event("turn_start", json!({})), event("turn_end", json!({"calls": 0}))];
        assert_eq!(talk(Heads::None, &quiet), "");
    }
}
