//! The questions of a check, and all that is heard in answer to one.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{
    domain::{
        call::{Arguments, ToolCall, ToolResult, ToolSpec},
        id::CallId,
        json::RawJson,
        message::{Kept, Message, Reply},
        outcome::Stop,
        task::Params,
        usage::Usage,
    },
    model::{Delta, Model, ModelError, ProposedCall, RateLimits, Request},
};

/// Tokens that one answer may have: enough for a model that thinks before it says a word.
const ANSWER_TOKENS: u32 = 1024;

/// Long enough that it does not come in one piece.
const WORDS: &str = "Count from one to thirty in English words, on one line, and say nothing else.";

const CALL: &str = "Call the tool lucky_number with the name \"herder\". When you have its result, answer with the number \
                    alone.";
const TOOL: &str = "lucky_number";
const RESULT: &str = "4711";

/// What is asked.
pub(super) enum Question<'a> {
    /// Something to say.
    Words,
    /// Something that wants a call.
    Call,
    /// The same, with what came of the call.
    Result { call: &'a Heard, proposed: ToolCall },
}

/// All that an answer was.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) text: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<ProposedCall>,
    pub(super) usage: Option<Usage>,
    pub(super) limits: Option<RateLimits>,
    pub(super) stop: Option<Stop>,
    pub(super) error: Option<ModelError>,
    /// The time for the check was over before the answer was.
    pub(super) is_late: bool,
    /// Pieces of text, and of thoughts.
    pub(super) pieces: usize,
    /// From the request to its first word, and to its end.
    pub(super) first: Option<Duration>,
    pub(super) took: Duration,
    kept: Vec<RawJson>,
}

impl Heard {
    /// The call that was wanted, or what came instead.
    pub(super) fn valid_call(&self) -> Result<ToolCall, String> {
        let Some(call) = self.calls.first() else {
            return Err("it called nothing".to_owned());
        };
        if &*call.name != TOOL {
            return Err(format!("it called {:?}, which was not on offer", call.name));
        }
        let arguments = Arguments::parse(&call.arguments)?;
        let name = serde_json::from_str::<Value>(arguments.as_str()).ok();
        if name.is_none_or(|arguments| !arguments["name"].is_string()) {
            return Err(format!("the arguments {} do not fit the tool's schema", arguments.as_str()));
        }
        let id = call.id.as_deref().filter(|id| !id.is_empty()).unwrap_or("call_1");
        Ok(ToolCall { id: CallId::new(id), provider_id: None, name: call.name.clone(), arguments })
    }

    /// Whether the answer has the tool's result in it.
    pub(super) fn has_result(&self) -> bool {
        self.text.contains(RESULT)
    }
}

/// Asks, and hears the answer to its end or until the time is over.
pub(super) async fn ask(model: &Model, question: Question<'_>, until: Instant) -> Heard {
    let request = request(model, &question);
    // Ends the request, should nobody wait for its answer any more.
    let cancel = CancellationToken::new();
    let _guard = cancel.clone().drop_guard();
    let since = Instant::now();
    let mut heard = Heard::default();
    let mut answer = model.provider.stream(request, cancel);
    loop {
        match timeout_at(until, answer.next()).await {
            Ok(Some(Ok(delta))) => heard.take(delta, since),
            Ok(Some(Err(error))) => heard.error = Some(error),
            Ok(None) => break,
            Err(_) => {
                heard.is_late = true;
                break;
            }
        }
    }
    heard.took = since.elapsed();
    heard
}

impl Heard {
    fn take(&mut self, delta: Delta, since: Instant) {
        match delta {
            Delta::Text(text) => {
                self.word(since);
                self.text.push_str(&text);
            }
            Delta::Reasoning(text) => {
                self.word(since);
                self.reasoning.push_str(&text);
            }
            Delta::Keep(block) => self.kept.push(block),
            Delta::Call(call) => self.calls.push(call),
            Delta::Usage(usage) => self.usage = Some(usage),
            Delta::RateLimits(limits) => self.limits = Some(limits),
            Delta::Stop(stop) => self.stop = Some(stop),
            Delta::Sent(_) | Delta::Progress => {}
        }
    }

    fn word(&mut self, since: Instant) {
        self.pieces += 1;
        self.first.get_or_insert_with(|| since.elapsed());
    }

    /// The answer as it stands in a conversation.
    fn reply(&self, model: &Model, call: ToolCall, stop: Stop) -> Reply {
        let blocks = self.kept.clone();
        Reply {
            text: self.text.as_str().into(),
            reasoning: (!self.reasoning.is_empty()).then(|| self.reasoning.as_str().into()),
            kept: (!blocks.is_empty()).then(|| Kept { model: model.wire_name.clone(), blocks }),
            calls: vec![call],
            ..Reply::new(stop)
        }
    }
}

fn request(model: &Model, question: &Question<'_>) -> Request {
    let said = match question {
        Question::Words => WORDS,
        Question::Call | Question::Result { .. } => CALL,
    };
    let mut messages = vec![Message::User(said.into())];
    let tools: Arc<[ToolSpec]> = match question {
        Question::Words => Arc::new([]),
        Question::Call | Question::Result { .. } => Arc::new([tool()]),
    };
    if let Question::Result { call, proposed } = question {
        let result = ToolResult {
            call: proposed.id.clone(),
            ok: true,
            output: RESULT.into(),
            failure: None,
            terminate: false,
            timing: None,
        };
        messages.push(Message::Assistant(Arc::new(call.reply(model, proposed.clone(), Stop::ToolCalls))));
        messages.push(Message::Tool(Arc::new(result)));
    }
    let max_tokens = Some(model.max_output_tokens.map_or(ANSWER_TOKENS, |most| most.min(ANSWER_TOKENS)));
    let params = Params { max_tokens, ..Params::default() };
    Request { tools, params, ..Request::new(model.wire_name.clone(), messages) }
}

fn tool() -> ToolSpec {
    ToolSpec {
        name: TOOL.into(),
        description: "Tells the lucky number of a name.".into(),
        schema: Arc::new(json!({
            "type": "object",
            "properties": {"name": {"type": "string", "description": "Whose number it is."}},
            "required": ["name"],
            "additionalProperties": false,
        })),
    }
}
