//! What the model is shown of a run: the task's rules, its facts, and as much of the conversation as fits.
//!
//! The task's own words and the newest block are always shown; of a run that goes on from another one these are its own,
//! and the other's for as long as anything of that is shown. A block (an answer with calls and all its results, or
//! what one side said) is shown whole or not at all, in its order, and what is left out is all older than what is shown.
//! Shares every payload, and reads no text while everything fits. Does not know the model's window or its tokenizer.

use std::sync::Arc;

use super::{call::ToolResult, message::Message, task::TaskSpec, usage::estimated_tokens};

/// A conversation as a model is shown it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    /// Rules, facts, the task, then the newest of what followed.
    pub messages: Vec<Message>,
    /// Messages of the history that are shown.
    pub included: usize,
    /// Messages of the history that are not.
    pub omitted: usize,
    /// Text bytes of it all.
    pub bytes: usize,
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
    let system_bytes = bytes_of(&system);
    let fits = |bytes: usize| budget_tokens.is_none_or(|budget| estimated_tokens(bytes) <= budget);

    let (head, tail, bytes) = if fits(system_bytes + history_bytes) {
        (history, history.len(), system_bytes + history_bytes)
    } else {
        beside_the_task(spec, |task| {
            let head = history.get(task..=task).unwrap_or_default();
            let (tail, bytes) = newest(history, task + head.len(), system_bytes + bytes_of(head), fits);
            (tail, (head, tail, bytes))
        })
    };
    let shown = history.get(tail..).unwrap_or_default();
    let included = head.len() + shown.len();

    let mut messages = system;
    messages.reserve_exact(included);
    messages.extend_from_slice(head);
    messages.extend_from_slice(shown);
    Projection { messages, included, omitted: history.len() - included, bytes }
}

/// Chooses what of `history` is shown to a model that turned out to bear only so many bytes, as a rule fewer than [`project`]
/// shows: of older calls first the outputs are left out, the oldest first, then whole blocks. Rules, facts, the task and the
/// newest block are shown all the same.
pub fn narrow(spec: &TaskSpec, history: &[Message], most: usize) -> Projection {
    beside_the_task(spec, |task| narrow_beside(spec, history, task, most))
}

/// Chooses with the first words of all beside what is shown, or with the task's own, once nothing before those is.
fn beside_the_task<T>(spec: &TaskSpec, choose: impl Fn(usize) -> (usize, T)) -> T {
    let task = spec.before.len();
    let (from, chosen) = choose(0);
    if from > task && task > 0 { choose(task).1 } else { chosen }
}

/// The same with the words at `task`; says from where on the history is shown.
fn narrow_beside(spec: &TaskSpec, history: &[Message], task: usize, most: usize) -> (usize, Projection) {
    let mut messages = system(spec);
    let head = history.get(task..=task).unwrap_or_default();
    messages.extend_from_slice(head);
    let first = task + head.len();
    let newest = block_start(history, first, history.len());
    let mut bytes = bytes_of(&messages) + bytes_of(history.get(newest..).unwrap_or_default());

    // Without their outputs, as many blocks as there is room for.
    let mut from = newest;
    while from > first {
        let start = block_start(history, first, from);
        let pruned: usize = history
            .get(start..from)
            .unwrap_or_default()
            .iter()
            .map(|message| without_output(message).bytes())
            .sum();
        if bytes + pruned > most {
            break;
        }
        (from, bytes) = (start, bytes + pruned);
    }
    // With what is left of it, the newest get their outputs back.
    let mut whole = newest;
    while whole > from {
        let start = block_start(history, first, whole);
        let block = history.get(start..whole).unwrap_or_default();
        let outputs: usize =
            block.iter().map(|message| message.bytes() - without_output(message).bytes()).sum();
        if bytes + outputs > most {
            break;
        }
        (whole, bytes) = (start, bytes + outputs);
    }

    messages.extend(history.get(from..whole).unwrap_or_default().iter().map(without_output));
    messages.extend_from_slice(history.get(whole..).unwrap_or_default());
    let included = head.len() + history.len() - from;
    (from, Projection { messages, included, omitted: history.len() - included, bytes })
}

/// What stands for an output that is left out.
const LEFT_OUT: &str = "(this output is left out: the conversation is too long)";

/// The message, its output left out if it has one that is longer than what stands for it.
fn without_output(message: &Message) -> Message {
    match message {
        Message::Tool(result) if result.output.len() > LEFT_OUT.len() => {
            let result = ToolResult { output: LEFT_OUT.into(), ..ToolResult::clone(result) };
            Message::Tool(Arc::new(result))
        }
        Message::System(_) | Message::User(_) | Message::Assistant(_) | Message::Tool(_) => message.clone(),
    }
}

fn bytes_of(messages: &[Message]) -> usize {
    messages.iter().map(Message::bytes).sum()
}

/// Where the newest blocks begin that are shown of `history[head..]`, with `used` bytes spent on what comes before, and how
/// many are spent then.
fn newest(history: &[Message], head: usize, mut used: usize, fits: impl Fn(usize) -> bool) -> (usize, usize) {
    let mut from = history.len();
    while from > head && (from == history.len() || fits(used)) {
        let start = block_start(history, head, from);
        used += bytes_of(history.get(start..from).unwrap_or_default());
        from = start;
    }
    (from, used)
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
mod tests;
