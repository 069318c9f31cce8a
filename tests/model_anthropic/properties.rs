//! Whatever a valid conversation holds, and wherever it is cut, a strict server accepts it.

use std::sync::Arc;

use herder::{
    domain::{
        call::{Arguments, ToolCall, ToolSpec},
        id::CallId,
        json::RawJson,
        message::{Kept, Message, Reply, validate},
        outcome::Stop,
        task::Params,
    },
    model::{ModelProvider as _, Request, anthropic::Settings},
};
use proptest::prelude::*;
use serde_json::{json, value::to_raw_value};
use tokio_util::sync::CancellationToken;

use crate::{
    ask::{MODEL, provider, request, result, serve},
    support::{
        hear::hear,
        messages::{answer, redacted, thinks, words},
    },
};

/// What may be said at once, so that a conversation can be cut before it.
#[derive(Clone, Debug)]
enum Block {
    User(String),
    Words { text: String, kept: Thoughts },
    Calls { text: String, kept: Thoughts, calls: Vec<Call> },
}

#[derive(Clone, Copy, Debug)]
enum Thoughts {
    None,
    Own,
    Hidden,
    Foreign,
}

#[derive(Clone, Debug)]
struct Call {
    id: String,
    name: String,
    ok: bool,
    output: String,
}

fn said() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zé \n]{0,6}[a-z😀][ \n]{0,2}", Just("x".to_owned())]
}

fn maybe_blank() -> impl Strategy<Value = String> {
    prop_oneof![said(), "[ \n\t]{0,3}"]
}

fn thoughts() -> impl Strategy<Value = Thoughts> {
    prop_oneof![Just(Thoughts::None), Just(Thoughts::Own), Just(Thoughts::Hidden), Just(Thoughts::Foreign)]
}

fn call() -> impl Strategy<Value = Call> {
    let id = prop_oneof!["[a-z.:|é]{0,3}", Just("id_".to_owned()), "[a-z]{70}"];
    let name = prop_oneof![Just("read".to_owned()), "[a-z][a-z. é]{0,4}"];
    (id, name, any::<bool>(), maybe_blank()).prop_map(|(id, name, ok, output)| Call { id, name, ok, output })
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        said().prop_map(Block::User),
        (said(), thoughts()).prop_map(|(text, kept)| Block::Words { text, kept }),
        (maybe_blank(), thoughts(), prop::collection::vec(call(), 1..4))
            .prop_map(|(text, kept, calls)| Block::Calls { text, kept, calls }),
    ]
}

fn kept(thoughts: Thoughts) -> Option<Kept> {
    let (model, blocks) = match thoughts {
        Thoughts::None => return None,
        Thoughts::Own => (MODEL, vec![thinks("hm"), redacted(), thinks("")]),
        Thoughts::Hidden => (MODEL, vec![redacted()]),
        Thoughts::Foreign => ("other", vec![json!({"type": "reasoning", "encrypted": "x"})]),
    };
    let blocks = blocks.iter().map(|block| RawJson(to_raw_value(block).unwrap().into())).collect();
    Some(Kept { model: model.into(), blocks })
}

impl Block {
    /// Its messages; the place makes its calls' ids unique.
    fn messages(&self, place: usize) -> Vec<Message> {
        let reply = |text: &str, thoughts, calls| {
            let kept = kept(thoughts);
            Message::Assistant(Arc::new(Reply {
                text: text.into(),
                kept,
                calls,
                ..Reply::new(Stop::EndTurn)
            }))
        };
        match self {
            Self::User(text) => vec![Message::User(text.as_str().into())],
            Self::Words { text, kept } => vec![reply(text, *kept, Vec::new())],
            Self::Calls { text, kept, calls } => {
                let ids = calls
                    .iter()
                    .enumerate()
                    .map(|(at, call)| CallId::new(format!("{}{place}-{at}", call.id)));
                let ids: Vec<_> = ids.collect();
                let asked = calls.iter().zip(&ids).map(|(call, id)| ToolCall {
                    id: id.clone(),
                    provider_id: None,
                    name: call.name.as_str().into(),
                    arguments: Arguments::parse(r#"{ "path": "é" }"#).unwrap(),
                });
                let asked = reply(text, *kept, asked.collect());
                let results =
                    calls.iter().zip(&ids).rev().map(|(call, id)| result(id, call.ok, &call.output));
                [asked].into_iter().chain(results).collect()
            }
        }
    }
}

fn params() -> impl Strategy<Value = Params> {
    let effort = prop::option::of(prop_oneof![Just("none"), Just("low"), Just("high")]);
    let choice = prop::option::of(prop_oneof![
        Just(json!("auto")),
        Just(json!("required")),
        Just(json!({"type": "function", "function": {"name": "read"}})),
    ]);
    let limit = prop::option::of(1..40_000_u32);
    (effort, choice, limit, prop::option::of(0.0..1.0)).prop_map(
        |(effort, tool_choice, max_tokens, temperature)| {
            let reasoning_effort = effort.map(str::to_owned);
            Params { temperature, max_tokens, reasoning_effort, tool_choice, ..Params::default() }
        },
    )
}

#[test]
fn any_valid_conversation_is_accepted_wherever_it_is_cut() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(serve(|_| answer(&[words("x")], "end_turn")));
    let provider = provider(&server, Settings::default());
    let tool = ToolSpec {
        name: "read".into(),
        description: "Reads.".into(),
        schema: Arc::new(json!({"type": "object"})),
    };
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(
        blocks in prop::collection::vec(block(), 0..8),
        rules in prop::collection::vec(maybe_blank(), 0..3),
        params in params(),
        has_tools in any::<bool>(),
    )| {
        for cut in 0..=blocks.len() {
            let rules = rules.iter().filter(|text| !text.trim().is_empty());
            let rules = rules.map(|text| Message::System(text.as_str().into()));
            let shown = blocks.iter().enumerate().skip(cut).flat_map(|(place, block)| block.messages(place));
            // What the projection leaves out, it leaves out behind the task.
            let task = Message::User("go".into());
            let messages: Vec<Message> = rules.chain([task]).chain(shown).collect();
            prop_assert_eq!(validate(&messages), Ok(()));
            let tools = if has_tools { Arc::new([tool.clone()]) as Arc<[_]> } else { Arc::new([]) };
            let request = Request { messages, tools, params: params.clone(), ..request("") };
            let said = runtime.block_on(hear(provider.stream(request, CancellationToken::new())));
            prop_assert_eq!((said.message(), said.text.as_str()), ("", "x"));
        }
    });
}
