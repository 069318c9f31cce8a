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
            let retry_after = fault.retry_after_s.map(Duration::from_secs);
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
#[path = "scripted_tests.rs"]
mod tests;
