//! The log of one run as it is shown: events of record, and under them what the model is saying now.
//!
//! Bounded in entries and in the text of each. It is read from its end: a scroll of nothing shows what comes.

use std::collections::VecDeque;

use ratatui::text::Line;
use serde::Deserialize;

use super::{
    view::Theme,
    words::{clean, wrap},
};
use crate::{
    cli::{
        live::Ahead,
        render::{Tone, describe, quote},
        told::Told,
    },
    daemon::client,
    domain::event::Event,
};

/// Entries that are kept.
pub(super) const KEPT: usize = 500;

/// Bytes of one text that are kept: its beginning, or the end of what is being said.
const TEXT: usize = 8 * 1024;

/// Columns before a text that belongs to an entry.
const INDENT: usize = 4;

#[derive(Debug)]
pub(super) struct Log {
    /// Columns of the screen, by which rows are counted.
    pub(super) width: usize,
    entries: VecDeque<Entry>,
    /// What the model thinks and says in this turn, until it is of record.
    thinking: String,
    saying: String,
    ahead: Ahead<Said>,
    /// Rows between the end of the log and the last one shown.
    pub(super) scroll: usize,
    /// Whether anything has come, or will not.
    pub(super) begun: bool,
    error: Option<String>,
}

#[derive(Debug)]
struct Entry {
    tone: Tone,
    head: String,
    text: String,
}

#[derive(Debug)]
enum Said {
    Thought(String),
    Text(String),
}

#[derive(Deserialize)]
struct Words {
    turn: u32,
    text: String,
}

impl Log {
    pub(super) const fn new(width: usize) -> Self {
        Self {
            width,
            entries: VecDeque::new(),
            thinking: String::new(),
            saying: String::new(),
            ahead: Ahead::new(),
            scroll: 0,
            begun: false,
            error: None,
        }
    }

    /// Takes an event in; one of a kind that is not known yet is shown as it came.
    pub(super) fn take(&mut self, event: &client::Event) {
        self.begun = true;
        match &*event.name {
            "text" | "reasoning" => {
                let Ok(Words { turn, text }) = serde_json::from_str(&event.data) else { return };
                let said = if event.name == "text" { Said::Text(text) } else { Said::Thought(text) };
                if let Some(said) = self.ahead.hear(turn, said) {
                    self.hear(said);
                }
            }
            "lagged" => {}
            _ => self.record(event),
        }
    }

    fn hear(&mut self, said: Said) {
        let (heard, text) = match said {
            Said::Thought(text) => (&mut self.thinking, text),
            Said::Text(text) => (&mut self.saying, text),
        };
        heard.push_str(&text);
        keep_end(heard);
    }

    /// No more events come.
    pub(super) fn end(&mut self, error: Option<String>) {
        self.begun = true;
        self.error = error;
        self.thinking.clear();
        self.saying.clear();
    }

    /// Whether its events could not be had.
    pub(super) const fn failed(&self) -> bool {
        self.error.is_some()
    }

    fn record(&mut self, event: &client::Event) {
        // A turn's words are of record with its message, and void with another request.
        if matches!(&*event.name, "message" | "model_retry" | "turn_start" | "run_end" | "restart") {
            self.thinking.clear();
            self.saying.clear();
        }
        let told = Told::read(event);
        if let Some(told) = &told {
            for said in self.ahead.reach(told.turn, told.kind == "message") {
                self.hear(said);
            }
        }
        let entry = match told {
            Some(told) => Entry::of(&told),
            None => Entry {
                tone: Tone::Dim,
                head: format!("{} {}", event.name, keep_start(&event.data)),
                text: String::new(),
            },
        };
        let rows = if self.scroll > 0 { entry.rows(self.width).len() } else { 0 };
        self.entries.push_back(entry);
        if self.entries.len() > KEPT {
            self.entries.pop_front();
        }
        // Whoever reads further up stays where they are.
        self.scroll += rows;
    }

    /// Rows that all of it takes.
    pub(super) fn rows(&self) -> usize {
        let live = self.live().map(|(_, text)| indented(text, self.width).len());
        self.entries.iter().map(|entry| entry.rows(self.width).len()).chain(live).sum()
    }

    /// The `height` rows that are to be seen.
    pub(super) fn lines(&self, width: usize, height: usize, theme: Theme) -> Vec<Line<'static>> {
        let mut lines: Vec<Line<'static>> = Vec::new();
        let wanted = height + self.scroll;
        if let Some(error) = &self.error {
            lines.push(Line::styled(format!("no more events: {error}"), theme.of(Tone::Bad)));
        }
        let live: Vec<_> = self.live().collect();
        for (tone, text) in live.into_iter().rev() {
            let rows = indented(text, width);
            lines.extend(rows.into_iter().rev().map(|row| Line::styled(row, theme.of(tone))));
        }
        for entry in self.entries.iter().rev() {
            if lines.len() >= wanted {
                break;
            }
            let rows = entry.rows(width).into_iter().rev();
            lines.extend(rows.map(|row| Line::styled(row, theme.of(entry.tone))));
        }
        // At the very top, the first rows fill the screen.
        let skipped = self.scroll.min(lines.len().saturating_sub(height));
        lines.into_iter().skip(skipped).take(height).rev().collect()
    }

    fn live(&self) -> impl Iterator<Item = (Tone, &str)> {
        let thinking = (!self.thinking.is_empty()).then_some((Tone::Dim, &*self.thinking));
        let saying = (!self.saying.is_empty()).then_some((Tone::Usual, &*self.saying));
        thinking.into_iter().chain(saying)
    }
}

impl Entry {
    fn of(told: &Told) -> Self {
        let (tone, what, text) = match &told.event {
            Ok(event) => {
                let text = whole(event);
                let (tone, what) = describe(event);
                // What follows whole is not quoted before it.
                let what = if text.is_empty() { what } else { what.replacen(&quote(text), "", 1) };
                let what = what.trim_start().trim_end_matches(": ").to_owned();
                (tone, what, text)
            }
            Err(data) => (Tone::Dim, keep_start(data), ""),
        };
        let head = format!("{} {:>3} {:<15} {what}", told.time, told.turn, told.kind);
        Self { tone, head: clean(head.trim_end()), text: keep_start(text) }
    }

    fn rows(&self, width: usize) -> Vec<String> {
        let mut rows = wrap(&self.head, width);
        if !self.text.is_empty() {
            rows.extend(indented(&self.text, width));
        }
        rows
    }
}

/// What the line about an event cuts short: words of more than a line.
fn whole(event: &Event) -> &str {
    let text: &str = match event {
        Event::Message(reply) => &reply.text,
        Event::Result(result) => &result.output,
        Event::Submitted(spec) => &spec.task,
        Event::InputQueued(input) => &input.text,
        Event::ApprovalRequested(request) => request.preview.as_deref().unwrap_or_default(),
        Event::RunStart(_)
        | Event::TurnStart(_)
        | Event::Decision(_)
        | Event::ApprovalResolved(_)
        | Event::CommandGroup(_)
        | Event::CallStarted(_)
        | Event::TurnEnd(_)
        | Event::InputClaimed(_)
        | Event::ModelRetry(_)
        | Event::RequestSent(_)
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
        | Event::RunEnd(_) => "",
    };
    let text = text.trim_end();
    if text.contains('\n') || text.len() > 100 { text } else { "" }
}

fn indented(text: &str, width: usize) -> Vec<String> {
    let rows = wrap(text, width.saturating_sub(INDENT));
    rows.into_iter().map(|row| format!("{:INDENT$}{row}", "")).collect()
}

fn keep_start(text: &str) -> String {
    if text.len() <= TEXT {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(TEXT);
    format!("{}\n… {} bytes more", &text[..end], text.len() - end)
}

fn keep_end(text: &mut String) {
    if text.len() > 2 * TEXT {
        let start = text.ceil_char_boundary(text.len() - TEXT);
        text.drain(..start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u64, name: &str, data: &str) -> client::Event {
        let data = match name {
            "text" | "reasoning" => data.to_owned(),
            _ => format!(
                r#"{{"v":1,"pos":{id},"run":"r","seq":{id},"at":"2026-01-02T03:04:05Z","turn":1,"kind":"{name}","data":{data}}}"#
            ),
        };
        client::Event { id: Some(id), name: name.to_owned(), data }
    }

    fn shown(log: &Log, height: usize) -> Vec<String> {
        log.lines(60, height, Theme::PLAIN).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_model_says_gives_way_to_its_message() {
        let mut log = Log::new(60);
        log.take(&event(1, "turn_start", "{}"));
        log.take(&event(0, "reasoning", r#"{"turn": 1, "text": "hm"}"#));
        log.take(&event(0, "text", r#"{"turn": 1, "text": "Hello, "}"#));
        log.take(&event(0, "text", r#"{"turn": 1, "text": "wörld 🌍"}"#));
        assert_eq!(shown(&log, 9), ["03:04:05   1 turn_start", "    hm", "    Hello, wörld 🌍"]);
        log.take(&event(
            2,
            "message",
            r#"{"text": "Hello", "calls": [], "stop": "end_turn", "usage": {"input": 1, "output": 1}}"#,
        ));
        let message = r#"03:04:05   1 message         "Hello" (end_turn, 1 tokens in,"#;
        assert_eq!(shown(&log, 9)[..2], ["03:04:05   1 turn_start", message]);
    }

    #[test]
    fn whoever_reads_further_up_stays_there() {
        let mut log = Log::new(60);
        for id in 1..=10 {
            log.take(&event(id, "turn_end", &format!(r#"{{"calls": {id}}}"#)));
        }
        log.scroll = 5;
        let before = shown(&log, 3);
        log.take(&event(11, "turn_end", r#"{"calls": 11}"#));
        assert_eq!(shown(&log, 3), before);
        log.scroll = 0;
        assert!(shown(&log, 3)[2].contains("11 calls"));
    }

    #[test]
    fn scrolled_beyond_its_beginning_the_first_rows_are_shown() {
        let mut log = Log::new(60);
        for id in 1..=4 {
            log.take(&event(id, "turn_end", &format!(r#"{{"calls": {id}}}"#)));
        }
        log.scroll = 99;
        assert!(shown(&log, 3)[0].contains("1 call"));
        assert_eq!(log.rows(), 4);
    }

    #[test]
    fn a_kind_that_is_not_known_and_what_is_no_event_are_shown_as_they_came() {
        let mut log = Log::new(60);
        log.take(&event(1, "approval_requested", r#"{"call": "c1"}"#));
        log.take(&client::Event { id: None, name: "odd".to_owned(), data: "[1]".to_owned() });
        assert_eq!(shown(&log, 9), [r#"03:04:05   1 approval_requested {"call": "c1"}"#, "odd [1]"]);
    }

    #[test]
    fn only_so_much_is_kept() {
        let mut log = Log::new(60);
        log.take(&event(1, "turn_start", "{}"));
        for id in 0..2 * KEPT as u64 {
            log.take(&event(id, "turn_end", r#"{"calls": 1}"#));
        }
        assert_eq!(log.entries.len(), KEPT);
        for _ in 0..100 {
            let said = serde_json::json!({ "turn": 1, "text": "é".repeat(1_000) });
            log.take(&event(0, "text", &said.to_string()));
        }
        assert!(log.saying.len() <= 2 * TEXT);
    }
}
