//! What a model is shown, whatever the budget.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::domain::{
    call::{Arguments, ToolCall, ToolResult},
    id::CallId,
    message::{Reply, validate},
    outcome::Stop,
};

#[test]
fn rules_come_first_then_facts_by_name_then_the_conversation() {
    let facts = [("os", "linux"), ("language", "rust")];
    let facts = facts.map(|(name, fact)| (name.to_owned(), fact.to_owned()));
    let spec = TaskSpec { system: Some("be brief".into()), facts: BTreeMap::from(facts), ..task() };
    let history = history(&[Block::Says(2)]);
    let mut expected = vec![
        Message::System("be brief".into()),
        Message::System("Known facts:\n- language: rust\n- os: linux".into()),
    ];
    expected.extend(history.clone());
    assert_eq!(
        show(&spec, &history, None),
        Projection { bytes: bytes_of(&expected), messages: expected, included: 2, omitted: 0 }
    );
}

#[test]
fn blank_rules_and_no_facts_are_no_messages() {
    let spec = TaskSpec { system: Some(" \n".into()), ..task() };
    let history = history(&[]);
    assert_eq!(show(&spec, &history, Some(0)).messages, history);
}

#[test]
fn the_block_that_crosses_the_budget_is_shown_and_older_ones_are_not() {
    let history = history(&[Block::Hears(40), Block::Acts(2, 40), Block::Acts(1, 40), Block::Says(40)]);
    // In tokens, from the newest on: 1 for the task, then 11, 22, 45 and 55 in all.
    let shown = |budget| {
        let Projection { messages, included, omitted, bytes } = show(&task(), &history, Some(budget));
        assert_eq!((messages.len(), omitted), (included, history.len() - included));
        assert_eq!(bytes, bytes_of(&messages));
        assert_eq!(messages[0], history[0]);
        assert_eq!(messages[1..], history[omitted + 1..]);
        included
    };
    assert_eq!([0, 10, 11, 21, 22, 44, 45].map(shown), [2, 2, 4, 4, 7, 7, 8]);
}

#[test]
fn a_block_larger_than_the_budget_is_shown_whole() {
    let history = history(&[Block::Says(4), Block::Acts(50, 4_000)]);
    let projection = show(&task(), &history, Some(10));
    assert_eq!((projection.included, projection.omitted), (52, 1));
    assert_eq!(projection.messages[1..], history[2..]);
}

#[test]
fn payloads_are_shared_not_copied() {
    let history = history(&[Block::Acts(1, 10)]);
    let projection = show(&task(), &history, None);
    for (shown, kept) in projection.messages.iter().zip(&history) {
        let same = match (shown, kept) {
            (Message::User(a), Message::User(b)) => Arc::ptr_eq(a, b),
            (Message::Assistant(a), Message::Assistant(b)) => Arc::ptr_eq(a, b),
            (Message::Tool(a), Message::Tool(b)) => Arc::ptr_eq(a, b),
            (a, b) => panic!("{a:?} is shown for {b:?}"),
        };
        assert!(same);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_budget_what_is_shown_is_valid_and_the_newest(
        blocks in prop::collection::vec(block(), 0..12),
        budget in prop::option::of(0..400_u64),
        facts in prop::collection::btree_map("[a-z]{1,4}", "[a-z ]{0,40}", 0..3),
    ) {
        let spec = TaskSpec { system: Some("rules".into()), facts, ..task() };
        let history = history(&blocks);
        let Projection { messages, included, omitted, bytes } = show(&spec, &history, budget);
        let system = system(&spec);
        let (shown_system, shown) = messages.split_at(system.len());

        prop_assert_eq!(validate(&messages), Ok(()));
        prop_assert_eq!(bytes, bytes_of(&messages));
        prop_assert_eq!(shown_system, &system[..]);
        prop_assert_eq!((shown.len(), omitted), (included, history.len() - included));
        prop_assert_eq!(&shown[0], &history[0]);
        prop_assert_eq!(&shown[1..], &history[omitted + 1..]);
        if let Some(newest) = blocks.last() {
            prop_assert!(included > newest.messages());
        }

        let bytes = bytes_of;
        if omitted > 0 {
            let budget = budget.unwrap();
            let oldest = blocks_of(&shown[1..]).next().unwrap();
            prop_assert!(estimated_tokens(bytes(&messages)) > budget, "room was left");
            let newer = blocks_of(&shown[1..]).skip(1).map(bytes).sum::<usize>();
            let before = bytes(&system) + bytes(&shown[..1]) + newer;
            let only = oldest.len() == shown.len() - 1;
            prop_assert!(only || estimated_tokens(before) <= budget, "more than the crossing block is over");
        }
    }
}

#[test]
fn of_older_calls_the_outputs_are_left_out_first_and_then_whole_blocks() {
    let history =
        history(&[Block::Acts(1, 1_000), Block::Says(100), Block::Acts(1, 1_000), Block::Acts(1, 1_000)]);
    let shown = |most| {
        let Projection { messages, included, omitted, bytes } = narrow(&task(), &history, most);
        assert_eq!(bytes, bytes_of(&messages));
        assert_eq!((messages.len(), omitted), (included, history.len() - included));
        let short = |message: &Message| match message {
            Message::Tool(result) if *result.output == *LEFT_OUT => 'o',
            Message::Tool(_) => 'O',
            Message::Assistant(reply) if reply.calls.is_empty() => 'S',
            Message::Assistant(_) => 'A',
            Message::User(_) | Message::System(_) => 'U',
        };
        (messages.iter().map(short).collect::<String>(), bytes <= most)
    };
    let told = |shown: &str, fits| (shown.to_owned(), fits);
    assert_eq!(shown(10_000), told("UAOSAOAO", true));
    assert_eq!(shown(2_400), told("UAoSAOAO", true));
    assert_eq!(shown(1_300), told("UAoSAoAO", true));
    assert_eq!(shown(1_200), told("USAoAO", true));
    assert_eq!(shown(1_100), told("UAoAO", true));
    assert_eq!(shown(1_050), told("UAO", true));
    assert_eq!(shown(500), told("UAO", false));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_little_a_model_bears_what_it_is_shown_is_valid_and_no_more_than_that_if_that_can_be(
        blocks in prop::collection::vec(block(), 0..12),
        most in 0..2_000_usize,
    ) {
        let history = history(&blocks);
        let Projection { messages, included, omitted, bytes } = narrow(&task(), &history, most);
        prop_assert_eq!(validate(&messages), Ok(()));
        prop_assert_eq!(bytes, bytes_of(&messages));
        prop_assert_eq!((messages.len(), omitted), (included, history.len() - included));
        prop_assert_eq!(&messages[0], &history[0]);
        let newest = blocks.last().map_or(0, Block::messages);
        prop_assert_eq!(&messages[messages.len() - newest..], &history[history.len() - newest..]);
        let least = bytes_of(&history[..1]) + bytes_of(&history[history.len() - newest..]);
        prop_assert!(bytes <= most.max(least));
        if bytes_of(&history) <= most {
            prop_assert_eq!(messages, history);
        }
    }
}

#[derive(Clone, Debug)]
enum Block {
    Says(usize),
    Hears(usize),
    Acts(usize, usize),
}

impl Block {
    fn messages(&self) -> usize {
        match self {
            Self::Says(_) | Self::Hears(_) => 1,
            Self::Acts(calls, _) => calls + 1,
        }
    }
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        (1..200_usize).prop_map(Block::Says),
        (1..200_usize).prop_map(Block::Hears),
        (1..4_usize, 0..300_usize).prop_map(|(calls, bytes)| Block::Acts(calls, bytes)),
    ]
}

fn blocks_of(messages: &[Message]) -> impl Iterator<Item = &[Message]> {
    messages.chunk_by(|_, next| matches!(next, Message::Tool(_)))
}

fn show(spec: &TaskSpec, history: &[Message], budget: Option<u64>) -> Projection {
    project(spec, history, history.iter().map(Message::bytes).sum(), budget)
}

fn history(blocks: &[Block]) -> Vec<Message> {
    let mut history = vec![Message::User("task".into())];
    for (turn, block) in blocks.iter().enumerate() {
        match *block {
            Block::Says(bytes) => history.push(reply("s".repeat(bytes), Vec::new())),
            Block::Hears(bytes) => history.push(Message::User("h".repeat(bytes).into())),
            Block::Acts(calls, bytes) => {
                let ids: Vec<_> = (0..calls).map(|n| CallId::new(format!("call_{turn}_{n}"))).collect();
                history.push(reply(String::new(), ids.iter().map(call).collect()));
                history.extend(ids.into_iter().map(|id| result(id, bytes)));
            }
        }
    }
    history
}

fn call(id: &CallId) -> ToolCall {
    ToolCall { id: id.clone(), provider_id: None, name: "read".into(), arguments: Arguments::empty() }
}

fn reply(text: String, calls: Vec<ToolCall>) -> Message {
    let stop = if calls.is_empty() { Stop::EndTurn } else { Stop::ToolCalls };
    Message::Assistant(Arc::new(Reply { text: text.into(), calls, ..Reply::new(stop) }))
}

fn result(call: CallId, bytes: usize) -> Message {
    let output = "r".repeat(bytes).into();
    Message::Tool(Arc::new(ToolResult {
        call,
        ok: true,
        output,
        failure: None,
        terminate: false,
        timing: None,
    }))
}

fn task() -> TaskSpec {
    serde_json::from_str(r#"{"task": "task", "attempt": 1, "model": "m", "workspace": "/w"}"#).unwrap()
}

#[test]
fn of_a_run_that_goes_on_its_own_words_are_always_shown_and_the_first_ones_with_what_follows_them() {
    let older = history(&[Block::Acts(1, 1_000), Block::Says(100)]);
    let newer = history(&[Block::Acts(1, 1_000), Block::Acts(1, 1_000)]);
    let all = [&older[..], &[Message::User("go on".into())], &newer[1..]].concat();
    let spec = TaskSpec { before: older, ..task() };
    let said = |Projection { messages, included, omitted, bytes }: Projection| {
        assert_eq!((bytes, included + omitted), (bytes_of(&messages), all.len()));
        let user =
            |message: &Message| if let Message::User(text) = message { Some(text.to_string()) } else { None };
        messages.iter().filter_map(user).collect::<Vec<_>>()
    };
    let shown = |budget| said(project(&spec, &all, bytes_of(&all), Some(budget)));
    assert_eq!(shown(10_000), ["task", "go on"]);
    assert_eq!(shown(600), ["task", "go on"]);
    assert_eq!(shown(100), ["go on"]);
    assert_eq!(said(narrow(&spec, &all, 10_000)), ["task", "go on"]);
    assert_eq!(said(narrow(&spec, &all, 500)), ["go on"]);
}
