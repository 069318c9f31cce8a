//! An answer in Chat Completions, as servers send it rather than as it is specified.
//!
//! What the parts hold decides, not the finish reason alone. An answer ends with a finish reason or with `[DONE]`;
//! one that just stops gave nothing. Fields that are missing, null or unknown do no harm.

use std::borrow::Cow;

use serde_json::{Value, value::RawValue};

use super::wire::{Choice, Chunk, Counts, WireCall, WireFunction};
use crate::{
    domain::{
        outcome::{FaultClass, Stop},
        text,
        usage::Usage,
    },
    model::{
        Delta, ModelError, ProposedCall,
        calls::{Calls, Piece, answerable},
        exchange::{Codec, Deltas, Held},
        fault,
        sse::{Event, Flow},
    },
};

/// An answer that is being read.
#[derive(Debug, Default)]
pub(in crate::model) struct Answer {
    calls: Calls,
    usage: Option<Usage>,
    finish: Option<Finish>,
    /// The server said that no more comes.
    done: bool,
    /// It declined in a field of its own.
    refused: bool,
}

/// What a finish reason says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    /// The model had no more to say, or wants tools run: the calls tell.
    Whole,
    Length,
    Filtered,
}

impl Codec for Answer {
    fn event(&mut self, event: Event<'_>, out: &mut Deltas) -> Result<Flow, ModelError> {
        let flow = self.read(event, out);
        self.failed_or(flow, out)
    }

    fn end(&mut self, out: &mut Deltas) -> Result<(), ModelError> {
        let end = self.finish(out);
        self.failed_or(end, out)
    }

    fn whole(&mut self, body: &str, out: &mut Deltas) -> Result<(), ModelError> {
        let whole = self.json(body, out).and_then(|()| self.finish(out));
        self.failed_or(whole, out)
    }

    fn held(&self) -> Held {
        self.calls.held()
    }
}

impl Answer {
    /// What was used up was used up for nothing, too.
    fn failed_or<T>(&mut self, read: Result<T, ModelError>, out: &mut Deltas) -> Result<T, ModelError> {
        read.inspect_err(|_| out.extend(self.usage.take().map(Delta::Usage)))
    }

    fn read(&mut self, event: Event<'_>, out: &mut Deltas) -> Result<Flow, ModelError> {
        if event.data.trim() == "[DONE]" {
            self.done = true;
            self.finish(out)?;
            return Ok(Flow::Done);
        }
        if event.name == "error" {
            return Err(fault::from_error(
                &text::from_json(event.data).unwrap_or_else(|_| event.data.into()),
            ));
        }
        self.json(event.data, out)?;
        Ok(Flow::More)
    }

    fn finish(&mut self, out: &mut Deltas) -> Result<(), ModelError> {
        let calls = std::mem::take(&mut self.calls).finish();
        // Without a reason nothing but the calls themselves says that they are whole.
        if self.finish.is_none() && !(self.done && calls.iter().all(ProposedCall::is_whole)) {
            return Err(cut("the answer ended early, without a finish reason"));
        }
        let calls = answerable(calls, self.finish == Some(Finish::Length))?;
        let stop = match self.finish {
            Some(Finish::Length) => Stop::Length,
            Some(Finish::Filtered) => Stop::Refusal,
            Some(Finish::Whole) | None if !calls.is_empty() => Stop::ToolCalls,
            Some(Finish::Whole) | None if self.refused => Stop::Refusal,
            Some(Finish::Whole) | None => Stop::EndTurn,
        };
        out.extend(calls.into_iter().map(|call| Delta::Call(call.mended())));
        out.extend(self.usage.map(Delta::Usage));
        out.push_back(Delta::Stop(stop));
        Ok(())
    }

    fn json(&mut self, json: &str, out: &mut Deltas) -> Result<(), ModelError> {
        if let Ok(mut chunk) = serde_json::from_str(json) {
            return self.chunk(&mut chunk, json, out);
        }
        let repaired = text::repair_surrogates(json);
        match serde_json::from_str(&repaired) {
            Ok(mut chunk) => self.chunk(&mut chunk, &repaired, out),
            Err(error) => {
                // The error quotes what it did not expect, however long that is.
                let error = fault::quote(&error.to_string());
                Err(cut(&format!("the answer is not valid JSON ({error}): {}", fault::quote(json))))
            }
        }
    }

    fn chunk(&mut self, chunk: &mut Chunk<'_>, json: &str, out: &mut Deltas) -> Result<(), ModelError> {
        if let Some(error) = chunk.error {
            return Err(told(error));
        }
        if let Some(usage) = chunk.usage.and_then(|raw| serde_json::from_str::<Counts>(raw.get()).ok()) {
            self.usage = Some(usage.into());
        }
        match &mut chunk.choices {
            Some(choices) => choices.iter_mut().try_for_each(|choice| self.choice(choice, out)),
            None if chunk.usage.is_some() => Ok(()),
            None => unlike_an_answer(json),
        }
    }

    fn choice(&mut self, choice: &mut Choice<'_>, out: &mut Deltas) -> Result<(), ModelError> {
        if let Some(error) = choice.error {
            return Err(told(error));
        }
        if let Some(part) = choice.delta.as_mut().or(choice.message.as_deref_mut()) {
            let reasoning = part.reasoning_content.0.take().or_else(|| part.reasoning.0.take());
            out.extend(reasoning.filter(|text| !text.is_empty()).map(Delta::Reasoning));
            out.extend(part.content.0.take().filter(|text| !text.is_empty()).map(Delta::Text));
            if let Some(refusal) = part.refusal.0.take().filter(|text| !text.is_empty()) {
                self.refused = true;
                out.push_back(Delta::Text(refusal));
            }
            let calls = part.tool_calls.as_deref().unwrap_or_default();
            let old = part.function_call.as_ref();
            let works = old.is_some() || calls.iter().any(WireCall::says_something);
            if works && out.back() != Some(&Delta::Progress) {
                out.push_back(Delta::Progress);
            }
            self.calls
                .take(calls.iter().map(|call| piece(call.index, call.id.as_deref(), call.function.as_ref())));
            self.calls.take(old.into_iter().map(|function| piece(None, None, Some(function))));
        }
        match choice.finish_reason.as_deref() {
            None | Some("") => {}
            Some("error") => return Err(cut("the server ended the answer with an error")),
            Some("length" | "max_tokens") => self.finish = Some(Finish::Length),
            Some("content_filter") => self.finish = Some(Finish::Filtered),
            Some(_) => self.finish = Some(Finish::Whole),
        }
        Ok(())
    }
}

fn piece<'a>(index: Option<i64>, id: Option<&'a str>, function: Option<&'a WireFunction<'a>>) -> Piece<'a> {
    Piece {
        index,
        id,
        name: function.and_then(|function| function.name.as_deref()),
        arguments: function.and_then(|function| function.arguments).map(arguments).unwrap_or_default(),
    }
}

/// The text of arguments, which should be a string of JSON and may be the JSON itself.
fn arguments(raw: &RawValue) -> Cow<'_, str> {
    match raw.get() {
        json if json.starts_with('"') => match json.get(1..json.len() - 1) {
            // Without an escape, what stands between the quotes is the text.
            Some(inside) if memchr::memchr(b'\\', inside.as_bytes()).is_none() => Cow::Borrowed(inside),
            Some(_) | None => text::from_json(json).map_or(Cow::Borrowed(json), Cow::Owned),
        },
        json => Cow::Borrowed(json),
    }
}

/// A chunk without choices is a keep-alive, unless it is an error in one of the shapes without an `error` field.
fn unlike_an_answer(json: &str) -> Result<(), ModelError> {
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    let kind = |key: &str| value.get(key).and_then(Value::as_str);
    if [kind("object"), kind("type")].contains(&Some("error")) || value.get("detail").is_some() {
        return Err(fault::from_error(&value));
    }
    Ok(())
}

fn told(error: &RawValue) -> ModelError {
    fault::from_error(&text::from_json(error.get()).unwrap_or_default())
}

fn cut(message: &str) -> ModelError {
    ModelError::new(FaultClass::Transient, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::exchange::Reading;

    const STREAM: &str = concat!(
        "data: {\"choices\":[{\"delta\":{\"content\":\"那 \\ud83d\\ude00\"}}]}\n\n",
        ": ping\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",",
        "\"function\":{\"name\":\"write\",\"arguments\":\"{\\\"c\\\":\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"1}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
        "data: [DONE]\n\n",
    );

    fn decode(bytes: &[u8]) -> (Deltas, Result<Flow, ModelError>) {
        let mut reading = Reading::new(Answer::default());
        let flow = match reading.take(bytes) {
            Ok(Flow::More) => reading.end(),
            flow => flow,
        };
        (reading.out, flow)
    }

    #[test]
    fn an_answer_cut_anywhere_gives_its_calls_whole_or_none() {
        let call =
            ProposedCall { id: Some("a".into()), name: "write".into(), arguments: r#"{"c":1}"#.to_owned() };
        let last = [Delta::Call(call), Delta::Stop(Stop::ToolCalls)];
        let finished = STREAM.find("\n\ndata: [DONE]").unwrap_or_default();
        for cut in 0..=STREAM.len() {
            let (mut out, end) = decode(&STREAM.as_bytes()[..cut]);
            let told = out.split_off(out.len().saturating_sub(2));
            assert_eq!((told == last, end.is_ok()), (cut >= finished, cut >= finished), "cut at {cut}");
        }
    }

    #[test]
    fn work_on_a_call_is_progress_and_an_empty_piece_is_none() {
        let told = |data: &str| {
            let mut out = Deltas::new();
            assert_eq!(Answer::default().event(Event { name: "", id: "", data }, &mut out), Ok(Flow::More));
            Vec::from(out)
        };
        let piece =
            |call: &str| format!(r#"{{"choices":[{{"delta":{{"content":"","tool_calls":[{call}]}}}}]}}"#);
        let work = r#"{"index":0,"function":{"arguments":"{"}}"#;
        assert_eq!(told(&piece(&format!("{work},{work}"))), [Delta::Progress]);
        assert_eq!(told(&piece(r#"{"index":0,"id":"","function":{"name":"","arguments":""}}"#)), []);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_bytes_whatever_do_harm(noise in proptest::collection::vec(0_u8..=255, 0..64), at in 0..STREAM.len()) {
            let mut bytes = STREAM.as_bytes().to_vec();
            bytes.splice(at..at, noise);
            let (out, end) = decode(&bytes);
            let stops = out.iter().filter(|delta| matches!(delta, Delta::Stop(_))).count();
            proptest::prop_assert_eq!(stops, usize::from(end.is_ok()));
        }
    }
}
