//! A request as Messages wants it, written straight from the conversation's own text.
//!
//! Rules come apart from the turns; a form that the answer is to have is asked for in words. At most three marks say
//! what the server may cache: rules and tools, and the last two turns of the user.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{
    sampling::{Circumstances, Sampling, Unfit},
    turns::{Block, CacheControl, Turns},
};
use crate::{
    domain::{call::ToolSpec, message::Message},
    model::{
        Request,
        body::{Fields, in_words, is_blank},
    },
};

/// Encodes a request's body.
pub(super) fn body(
    request: &Request,
    prompt_cache: bool,
    extra: &Map<String, Value>,
) -> Result<Vec<u8>, Unfit> {
    let is_rule = |message: &Message| matches!(message, Message::System(_));
    let begin = request.messages.iter().position(|message| !is_rule(message));
    let (rules, conversation) = request.messages.split_at(begin.unwrap_or(request.messages.len()));
    let mut system = system(rules, request);
    let mut turns = Turns::new(conversation, &request.model);
    let has_tools = !request.tools.is_empty();
    let here = Circumstances { may_think: turns.may_think(), has_tools, extra };
    let sampling = Sampling::new(&request.params, here)?;
    if prompt_cache {
        turns.cache();
        if let Some(last) = system.last_mut() {
            last.cache();
        }
    }
    // Tools come before the rules, so a mark on these covers both.
    let cached = prompt_cache && system.is_empty();
    let tools = Tools { tools: &request.tools, cached };
    let mut bytes = Vec::with_capacity(4096);
    serde_json::to_writer(
        &mut bytes,
        &Body { model: &request.model, sampling, system, tools, turns, extra },
    )?;
    Ok(bytes)
}

fn system<'a>(rules: &'a [Message], request: &Request) -> Vec<Block<'a>> {
    let text = |message: &'a Message| match message {
        Message::System(text) | Message::User(text) => Some(&**text).filter(|text| !is_blank(text)),
        Message::Assistant(_) | Message::Tool(_) => None,
    };
    let rules = rules.iter().filter_map(text).map(Block::text);
    rules.chain(request.response_format.as_ref().map(in_words).map(Block::text)).collect()
}

struct Body<'a> {
    model: &'a str,
    sampling: Sampling<'a>,
    system: Vec<Block<'a>>,
    tools: Tools<'a>,
    turns: Turns<'a>,
    extra: &'a Map<String, Value>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { model, sampling, system, tools, turns, extra } = self;
        let mut fields = Fields { map: serializer.serialize_map(None)?, extra };
        fields.put("model", Some(model))?;
        fields.put("max_tokens", Some(sampling.max_tokens))?;
        fields.put("thinking", sampling.thinking.as_ref())?;
        fields.put("output_config", sampling.output_config.as_ref())?;
        fields.put("temperature", sampling.temperature)?;
        fields.put("top_p", sampling.top_p)?;
        fields.put("system", Some(system).filter(|system| !system.is_empty()))?;
        fields.put("tools", Some(tools).filter(|tools| !tools.tools.is_empty()))?;
        fields.put("tool_choice", sampling.tool_choice.as_ref())?;
        fields.put("messages", Some(turns))?;
        fields.put("stream", Some(true))?;
        fields.end()
    }
}

struct Tools<'a> {
    tools: &'a [ToolSpec],
    cached: bool,
}

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let last = self.tools.len().saturating_sub(1);
        serializer.collect_seq(self.tools.iter().enumerate().map(|(at, tool)| WireTool {
            name: &tool.name,
            description: &tool.description,
            input_schema: &tool.schema,
            cache_control: (self.cached && at == last).then_some(CacheControl::Ephemeral),
        }))
    }
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[cfg(test)]
mod tests;
