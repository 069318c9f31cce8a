//! A model that says what a script says: without a key, without a network, the same each time.
//!
//! It can be slow, fail and fall silent as servers do, and it is cancelled as they are. Knows nothing of whose turn it
//! is: the request names the reply.

use std::{sync::Arc, time::Duration, vec};

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Delta, ModelError, ModelProvider, ProposedCall, Request, fault};
use crate::domain::{
    message::Message,
    outcome::{FaultClass, Stop},
    script::{Fault, Script, ScriptedCall, ScriptedReply, Silence},
    text,
    usage::Usage,
};

/// What a lenient model says when its script is over: something, so that the run ends well.
const END_OF_SCRIPT: &str = "(end of script)";

/// Bytes that count as a token where the script says nothing of tokens.
const BYTES_PER_TOKEN: usize = 4;

/// A provider that answers from each request's script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scripted {
    at_the_end: AtTheEnd,
}

/// What happens when a run asks for more replies than its script has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtTheEnd {
    /// The model has no more to say, and stops.
    #[default]
    Stop,
    /// The request is refused.
    Refuse,
}

impl Scripted {
    /// A provider that does this at the end of a script.
    pub const fn new(at_the_end: AtTheEnd) -> Self {
        Self { at_the_end }
    }
}

impl ModelProvider for Scripted {
    fn stream(
        &self,
        request: Request,
        cancel: CancellationToken,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        let telling = Telling { cancel, at_the_end: self.at_the_end, state: State::Asked(request) };
        stream::unfold(telling, Telling::next).fuse().boxed()
    }
}

/// A reply that is being told.
struct Telling {
    cancel: CancellationToken,
    at_the_end: AtTheEnd,
    state: State,
}

enum State {
    Asked(Request),
    Saying(vec::IntoIter<Delta>, Ending),
    Over,
}

/// What comes after the last delta.
enum Ending {
    Over,
    Fails(ModelError),
    Stalls,
}

impl Telling {
    async fn next(mut self) -> Option<(Result<Delta, ModelError>, Self)> {
        if matches!(self.state, State::Over) {
            return None;
        }
        if self.cancel.is_cancelled() {
            return self.fail(ModelError::cancelled());
        }
        if let State::Asked(request) = self.state {
            let reply = reply(&request);
            if let Some(delay) = reply.and_then(|reply| reply.delay_ms).filter(|delay| *delay > 0) {
                let wait = self.cancel.run_until_cancelled(sleep(Duration::from_millis(delay)));
                if wait.await.is_none() {
                    self.state = State::Over;
                    return Some((Err(ModelError::cancelled()), self));
                }
            }
            let (deltas, ending) = tell(&request, reply, self.at_the_end);
            self.state = State::Saying(deltas.into_iter(), ending);
        }
        let State::Saying(mut deltas, ending) = std::mem::replace(&mut self.state, State::Over) else {
            return None;
        };
        if let Some(delta) = deltas.next() {
            self.state = State::Saying(deltas, ending);
            return Some((Ok(delta), self));
        }
        match ending {
            Ending::Over => None,
            Ending::Fails(error) => self.fail(error),
            Ending::Stalls => {
                self.cancel.cancelled().await;
                self.fail(ModelError::cancelled())
            }
        }
    }

    fn fail(mut self, error: ModelError) -> Option<(Result<Delta, ModelError>, Self)> {
        self.state = State::Over;
        Some((Err(error), self))
    }
}

fn reply(request: &Request) -> Option<&ScriptedReply> {
    request.script.as_ref().and_then(|Script(replies)| replies.get(request.reply))
}

/// Everything that the reply says, and how it ends.
fn tell(request: &Request, reply: Option<&ScriptedReply>, at_the_end: AtTheEnd) -> (Vec<Delta>, Ending) {
    match (reply, at_the_end) {
        (Some(ScriptedReply { fault: Some(Fault::Status(fault)), .. }), _) => {
            let body = fault.body.as_deref().unwrap_or_default();
            let retry_after = fault.retry_after_s.filter(|wait| *wait > 0).map(Duration::from_secs);
            (Vec::new(), Ending::Fails(fault::from_status(fault.status, body, retry_after)))
        }
        // What the script says before the silence has been said.
        (Some(reply @ ScriptedReply { fault: Some(Fault::Silent(Silence::Stall)), .. }), _) => {
            (speech(reply), Ending::Stalls)
        }
        (Some(reply @ ScriptedReply { fault: Some(Fault::Silent(Silence::Drop)), .. }), _) => {
            (speech(reply), Ending::Fails(ModelError::new(FaultClass::Transient, "the connection dropped")))
        }
        (Some(reply), _) => (whole(request, reply), Ending::Over),
        (None, AtTheEnd::Stop) => {
            let text = Delta::Text(END_OF_SCRIPT.to_owned());
            (vec![text, Delta::Usage(Usage::default()), Delta::Stop(Stop::EndTurn)], Ending::Over)
        }
        (None, AtTheEnd::Refuse) => {
            let replies = request.script.as_ref().map_or(0, |Script(replies)| replies.len());
            let message = format!("reply {} was asked for, the script has {replies}", request.reply + 1);
            (Vec::new(), Ending::Fails(ModelError::new(FaultClass::Invalid, message)))
        }
    }
}

fn whole(request: &Request, reply: &ScriptedReply) -> Vec<Delta> {
    let mut deltas = speech(reply);
    deltas.extend(reply.calls.iter().map(|call| Delta::Call(propose(call))));
    let usage = match reply.usage {
        Some(usage) => Usage { input: usage.input, output: usage.output, ..Usage::default() },
        None => estimate(request, reply),
    };
    let by_itself = if reply.calls.is_empty() { Stop::EndTurn } else { Stop::ToolCalls };
    deltas.extend([Delta::Usage(usage), Delta::Stop(reply.stop.unwrap_or(by_itself))]);
    deltas
}

/// The reasoning and the text, the text in as many pieces as the script wants and its characters allow.
fn speech(reply: &ScriptedReply) -> Vec<Delta> {
    let text = reply.text.as_deref().unwrap_or_default();
    let pieces = reply
        .chunks
        .map_or(1, |chunks| usize::try_from(chunks).unwrap_or(usize::MAX))
        .clamp(1, text.len().max(1));
    let mut deltas = Vec::with_capacity(pieces + reply.calls.len() + 3);
    deltas.extend(
        reply
            .reasoning
            .as_deref()
            .filter(|text| !text.is_empty())
            .map(|text| Delta::Reasoning(text.to_owned())),
    );
    let mut rest = text;
    for left in (1..=pieces).rev() {
        let (piece, after) = rest.split_at(rest.ceil_char_boundary(rest.len().div_ceil(left)));
        if !piece.is_empty() {
            deltas.push(Delta::Text(piece.to_owned()));
        }
        rest = after;
    }
    deltas
}

fn propose(call: &ScriptedCall) -> ProposedCall {
    let json = call.arguments.get();
    let arguments = if json.starts_with('"') { text::from_json(json).ok() } else { None };
    ProposedCall {
        id: call.id.as_ref().map(Arc::clone),
        name: Arc::clone(&call.name),
        arguments: arguments.unwrap_or_else(|| text::repair_surrogates(json).into_owned()),
    }
}

/// A guess by size, so that budgets mean something in a script that says nothing of tokens.
fn estimate(request: &Request, reply: &ScriptedReply) -> Usage {
    let sent: usize = request.messages.iter().map(size).sum();
    let said = reply.text.as_ref().map_or(0, |text| text.len())
        + reply.reasoning.as_ref().map_or(0, |text| text.len())
        + reply.calls.iter().map(|call| call.name.len() + call.arguments.get().len()).sum::<usize>();
    let tokens = |bytes: usize| bytes.div_ceil(BYTES_PER_TOKEN) as u64;
    Usage { input: tokens(sent), output: tokens(said), estimated: true, ..Usage::default() }
}

fn size(message: &Message) -> usize {
    match message {
        Message::System(text) | Message::User(text) => text.len(),
        Message::Assistant(reply) => {
            let calls = reply.calls.iter().map(|call| call.name.len() + call.arguments.as_str().len());
            reply.text.len() + calls.sum::<usize>()
        }
        Message::Tool(result) => result.output.len(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    fn request(script: &Value, reply: usize) -> Request {
        Request {
            script: Some(serde_json::from_value(script.clone()).unwrap()),
            reply,
            ..Request::new("scripted".into(), vec![Message::User("12345678".into())])
        }
    }

    async fn hear(script: &Value, reply: usize) -> Vec<Result<Delta, ModelError>> {
        Scripted::default().stream(request(script, reply), CancellationToken::new()).collect().await
    }

    async fn deltas(script: &Value, reply: usize) -> Vec<Delta> {
        hear(script, reply).await.into_iter().map(Result::unwrap).collect()
    }

    async fn failure(script: &Value) -> (FaultClass, Option<Duration>) {
        let heard = hear(script, 0).await;
        let error = heard.into_iter().last().unwrap().unwrap_err();
        (error.class, error.retry_after)
    }

    fn spent(input: u64, output: u64, estimated: bool) -> Delta {
        Delta::Usage(Usage { input, output, estimated, ..Usage::default() })
    }

    #[tokio::test]
    async fn a_reply_is_told_in_its_pieces_and_stops_by_what_it_holds() {
        let script = json!([
            {"text": "héllo", "reasoning": "hm", "chunks": 3, "usage": {"input": 7, "output": 3}},
            {"calls": [{"id": "a", "name": "read", "arguments": {"path": "x"}}, {"name": "list", "arguments": "\"raw"}]},
            {"text": "x", "stop": "length"},
        ]);
        let text = |text: &str| Delta::Text(text.to_owned());
        let expected = vec![
            Delta::Reasoning("hm".to_owned()),
            text("hé"),
            text("ll"),
            text("o"),
            spent(7, 3, false),
            Delta::Stop(Stop::EndTurn),
        ];
        assert_eq!(deltas(&script, 0).await, expected);

        let call = |id: Option<&str>, name: &str, arguments: &str| {
            Delta::Call(ProposedCall {
                id: id.map(Into::into),
                name: name.into(),
                arguments: arguments.to_owned(),
            })
        };
        let expected = vec![
            call(Some("a"), "read", r#"{"path":"x"}"#),
            call(None, "list", "\"raw"),
            spent(2, 7, true),
            Delta::Stop(Stop::ToolCalls),
        ];
        assert_eq!(deltas(&script, 1).await, expected);
        assert_eq!(deltas(&script, 2).await.last(), Some(&Delta::Stop(Stop::Length)));
    }

    #[tokio::test]
    async fn more_pieces_than_characters_are_as_many_as_there_are_characters() {
        for (text, pieces) in [("ab", 2), ("那", 1), ("", 0)] {
            let script = json!([{"text": text, "chunks": 1_000_000}]);
            let told = deltas(&script, 0).await;
            assert_eq!(told.iter().filter(|delta| matches!(delta, Delta::Text(_))).count(), pieces, "{text}");
        }
    }

    #[tokio::test]
    async fn a_script_that_is_over_ends_the_run_or_refuses() {
        let text = Delta::Text(END_OF_SCRIPT.to_owned());
        assert_eq!(deltas(&json!([]), 3).await, [text, spent(0, 0, false), Delta::Stop(Stop::EndTurn)]);

        let strict = Scripted::new(AtTheEnd::Refuse);
        let heard: Vec<_> =
            strict.stream(request(&json!([{"text": "x"}]), 1), CancellationToken::new()).collect().await;
        let expected = ModelError::new(FaultClass::Invalid, "reply 2 was asked for, the script has 1");
        assert_eq!(heard, [Err(expected)]);
    }

    #[tokio::test]
    async fn scripted_failures_are_those_of_a_server() {
        let table = [
            (json!({"status": 429, "retry_after_s": 2}), FaultClass::RateLimit, Some(Duration::from_secs(2))),
            (
                json!({"status": 429, "body": "{\"error\":{\"code\":\"insufficient_quota\"}}"}),
                FaultClass::Quota,
                None,
            ),
            (json!({"status": 529}), FaultClass::Overloaded, None),
            (json!({"status": 500}), FaultClass::Transient, None),
            (json!({"status": 401}), FaultClass::Auth, None),
            (json!({"status": 400, "body": "maximum context length"}), FaultClass::ContextOverflow, None),
            (json!("drop"), FaultClass::Transient, None),
        ];
        for (fault, class, retry_after) in table {
            assert_eq!(failure(&json!([{"fault": fault}])).await, (class, retry_after), "{fault}");
        }
        let heard = hear(&json!([{"text": "par", "fault": "drop"}]), 0).await;
        assert_eq!((heard.len(), heard[0].as_ref().unwrap()), (2, &Delta::Text("par".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reply_takes_its_time_and_is_cancelled_at_once() {
        let script = json!([{"text": "x", "delay_ms": 60_000}]);
        let start = Instant::now();
        assert_eq!(deltas(&script, 0).await.len(), 3);
        assert_eq!(start.elapsed(), Duration::from_secs(60));

        let cancel = CancellationToken::new();
        let mut stream = Scripted::default().stream(request(&script, 0), cancel.clone());
        let start = Instant::now();
        let (first, ()) = tokio::join!(stream.next(), async {
            sleep(Duration::from_millis(5)).await;
            cancel.cancel();
        });
        assert_eq!(first, Some(Err(ModelError::cancelled())));
        assert_eq!((start.elapsed(), stream.next().await), (Duration::from_millis(5), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_reply_says_nothing_more_until_it_is_cancelled() {
        let cancel = CancellationToken::new();
        let script = json!([{"text": "par", "fault": "stall"}]);
        let mut stream = Scripted::default().stream(request(&script, 0), cancel.clone());
        assert_eq!(stream.next().await, Some(Ok(Delta::Text("par".to_owned()))));
        assert!(tokio::time::timeout(Duration::from_secs(86_400), stream.next()).await.is_err());
        cancel.cancel();
        assert_eq!(stream.next().await, Some(Err(ModelError::cancelled())));
    }

    #[tokio::test]
    async fn a_cancelled_request_tells_nothing() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let mut stream = Scripted::default().stream(request(&json!([{"text": "x"}]), 0), cancel);
        assert_eq!(stream.next().await, Some(Err(ModelError::cancelled())));
        assert_eq!(stream.next().await, None);
    }
}
