//! What the model is shown of a run: the task's rules, its facts, and as much of the conversation as fits.
//!
//! The task's own words and the newest block are always shown. A block (an answer with calls and all its results, or
//! what one side said) is shown whole or not at all, in its order, and what is left out is all older than what is shown.
//! Shares every payload, and reads no text while everything fits. Does not know the model's window or its tokenizer.

use std::sync::Arc;

use super::{message::Message, task::TaskSpec, usage::estimated_tokens};

/// A conversation as a model is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// Rules, facts, the task, then the newest of what followed.
    pub messages: Vec<Message>,
    /// Messages of the history that are shown.
    pub included: usize,
    /// Messages of the history that are not.
    pub omitted: usize,
}

/// Chooses what of `history` (of `history_bytes` in all, the task first) is shown within `budget_tokens`, an estimate; `None` is no
/// limit. The block that crosses the budget is still shown, so a caller leaves room for one.
pub fn project(
    spec: &TaskSpec,
    history: &[Message],
    history_bytes: usize,
    budget_tokens: Option<u64>,
) -> Projection {
    let system = system(spec);
    let system_bytes: usize = system.iter().map(Message::bytes).sum();
    let fits = |bytes: usize| budget_tokens.is_none_or(|budget| estimated_tokens(bytes) <= budget);

    let (head, tail) = if fits(system_bytes + history_bytes) {
        (history, history.len())
    } else {
        let head = history.get(..1).unwrap_or_default();
        let head_bytes: usize = head.iter().map(Message::bytes).sum();
        (head, newest(history, head.len(), system_bytes + head_bytes, fits))
    };
    let shown = history.get(tail..).unwrap_or_default();
    let included = head.len() + shown.len();

    let mut messages = system;
    messages.reserve_exact(included);
    messages.extend_from_slice(head);
    messages.extend_from_slice(shown);
    Projection { messages, included, omitted: history.len() - included }
}

/// Where the newest blocks begin that are shown of `history[head..]`, with `used` bytes spent on what comes before.
fn newest(history: &[Message], head: usize, mut used: usize, fits: impl Fn(usize) -> bool) -> usize {
    let mut from = history.len();
    while from > head && (from == history.len() || fits(used)) {
        let start = block_start(history, head, from);
        used += history.get(start..from).unwrap_or_default().iter().map(Message::bytes).sum::<usize>();
        from = start;
    }
    from
}

/// Where the block begins that ends before `end`: results belong to the answer that asked for them.
fn block_start(history: &[Message], head: usize, end: usize) -> usize {
    let body = history.get(head..end).unwrap_or_default();
    head + body.iter().rposition(|message| !matches!(message, Message::Tool(_))).unwrap_or(0)
}

/// The task's rules, then its facts by name: each one message, or none.
fn system(spec: &TaskSpec) -> Vec<Message> {
    let rules = spec.system.clone().filter(|text| !text.trim().is_empty());
    rules.into_iter().chain(facts(spec)).map(Message::System).collect()
}

fn facts(spec: &TaskSpec) -> Option<Arc<str>> {
    if spec.facts.is_empty() {
        return None;
    }
    let mut text = String::from("Known facts:");
    for (name, fact) in &spec.facts {
        text.extend(["\n- ", name, ": ", fact]);
    }
    Some(text.into())
}

#[cfg(test)]
mod tests {
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
        assert_eq!(show(&spec, &history, None), Projection { messages: expected, included: 2, omitted: 0 });
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
        // In tokens, from the newest on: 1 for the task, then 11, 21, 42 and 52 in all.
        let shown = |budget| {
            let Projection { messages, included, omitted } = show(&task(), &history, Some(budget));
            assert_eq!((messages.len(), omitted), (included, history.len() - included));
            assert_eq!(messages[0], history[0]);
            assert_eq!(messages[1..], history[omitted + 1..]);
            included
        };
        assert_eq!([0, 10, 11, 20, 21, 41, 42].map(shown), [2, 2, 4, 4, 7, 7, 8]);
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
            let Projection { messages, included, omitted } = show(&spec, &history, budget);
            let system = system(&spec);
            let (shown_system, shown) = messages.split_at(system.len());

            prop_assert_eq!(validate(&messages), Ok(()));
            prop_assert_eq!(shown_system, &system[..]);
            prop_assert_eq!((shown.len(), omitted), (included, history.len() - included));
            prop_assert_eq!(&shown[0], &history[0]);
            prop_assert_eq!(&shown[1..], &history[omitted + 1..]);
            if let Some(newest) = blocks.last() {
                prop_assert!(included > newest.messages());
            }

            let bytes = |messages: &[Message]| messages.iter().map(Message::bytes).sum::<usize>();
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
        ToolCall { id: id.clone(), provider_id: None, name: "".into(), arguments: Arguments::empty() }
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
}
