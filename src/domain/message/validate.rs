//! What every provider wants of a conversation, checked before anything is sent.
//!
//! Knows nothing of one provider's own rules: a codec adapts to those.

use std::collections::BTreeSet;

use super::{Message, Reply};

/// Why a conversation is not one that a provider accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("message {at}: call {id} is answered by nothing before the next message")]
    Unanswered { at: usize, id: String },
    #[error("message {at}: the result for {id} answers no open call")]
    Orphan { at: usize, id: String },
    #[error("message {at}: call id {id} was used before")]
    DuplicateId { at: usize, id: String },
    #[error("message {at}: a call without an id or a name")]
    Nameless { at: usize },
    #[error("message {at} is empty")]
    Empty { at: usize },
    #[error("message {at}: a system message after the conversation began")]
    LateSystem { at: usize },
    #[error("message {at}: the conversation begins with something else than the user's words")]
    NotTheUser { at: usize },
}

/// Checks the rules that every provider has in common: the user speaks first, after the rules; each call has an id and a name,
/// and is answered once, right after the message that asked; ids are unique over the whole history; nothing is empty.
///
/// # Errors
/// The first rule that is broken, and where.
pub fn validate(messages: &[Message]) -> Result<(), Invalid> {
    let mut used = BTreeSet::new();
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut begun = false;
    for (at, message) in messages.iter().enumerate() {
        if let Message::Tool(result) = message {
            let id = result.call.as_str();
            if !open.remove(id) {
                return Err(Invalid::Orphan { at, id: id.to_owned() });
            }
            continue;
        }
        if let Some(id) = open.first() {
            return Err(Invalid::Unanswered { at, id: (*id).to_owned() });
        }
        match message {
            Message::System(_) if begun => return Err(Invalid::LateSystem { at }),
            Message::System(text) | Message::User(text) if text.trim().is_empty() => {
                return Err(Invalid::Empty { at });
            }
            Message::System(_) => {}
            Message::User(_) | Message::Tool(_) => begun = true,
            Message::Assistant(_) if !begun => return Err(Invalid::NotTheUser { at }),
            Message::Assistant(reply) => asks(reply, at, &mut used, &mut open)?,
        }
    }
    open.first().map_or(Ok(()), |id| Err(Invalid::Unanswered { at: messages.len(), id: (*id).to_owned() }))
}

/// An answer opens the calls that it asks for.
fn asks<'a>(
    reply: &'a Reply,
    at: usize,
    used: &mut BTreeSet<&'a str>,
    open: &mut BTreeSet<&'a str>,
) -> Result<(), Invalid> {
    if reply.text.trim().is_empty() && reply.calls.is_empty() {
        return Err(Invalid::Empty { at });
    }
    for call in &reply.calls {
        let id = call.id.as_str();
        if id.trim().is_empty() || call.name.trim().is_empty() {
            return Err(Invalid::Nameless { at });
        }
        if !used.insert(id) {
            return Err(Invalid::DuplicateId { at, id: id.to_owned() });
        }
        open.insert(id);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::{
        call::{Arguments, ToolCall, ToolResult},
        id::CallId,
        outcome::Stop,
    };

    fn user(text: &str) -> Message {
        Message::User(text.into())
    }

    fn system(text: &str) -> Message {
        Message::System(text.into())
    }

    fn asks(ids: &[&str]) -> Message {
        named(ids, "read")
    }

    fn named(ids: &[&str], name: &str) -> Message {
        let call = |id: &&str| ToolCall {
            id: CallId::new(*id),
            provider_id: None,
            name: name.into(),
            arguments: Arguments::empty(),
        };
        let calls = ids.iter().map(call).collect();
        Message::Assistant(Arc::new(Reply { calls, ..Reply::new(Stop::ToolCalls) }))
    }

    fn says(text: &str) -> Message {
        Message::Assistant(Arc::new(Reply { text: text.into(), ..Reply::new(Stop::EndTurn) }))
    }

    fn result(id: &str) -> Message {
        Message::Tool(Arc::new(ToolResult {
            call: CallId::new(id),
            ok: true,
            output: "".into(),
            failure: None,
            terminate: false,
            timing: None,
        }))
    }

    #[test]
    fn a_conversation_by_the_rules_is_valid() {
        let messages = [
            system("rules"),
            system("facts"),
            user("go"),
            asks(&["a", "b"]),
            result("b"),
            result("a"),
            user("and?"),
            user("well?"),
            says("done"),
        ];
        assert_eq!(validate(&messages), Ok(()));
        assert_eq!(validate(&[]), Ok(()));
    }

    #[test]
    fn each_broken_rule_is_told_with_its_place() {
        let id = |id: &str| id.to_owned();
        let table = [
            (vec![user("go"), asks(&["a"]), user("x")], Invalid::Unanswered { at: 2, id: id("a") }),
            (vec![user("go"), asks(&["a", "b"]), result("a")], Invalid::Unanswered { at: 3, id: id("b") }),
            (vec![user("go"), result("a")], Invalid::Orphan { at: 1, id: id("a") }),
            (
                vec![user("go"), asks(&["a"]), result("a"), result("a")],
                Invalid::Orphan { at: 3, id: id("a") },
            ),
            (
                vec![user("go"), asks(&["a"]), result("a"), asks(&["a"]), result("a")],
                Invalid::DuplicateId { at: 3, id: id("a") },
            ),
            (vec![user("go"), asks(&["a", "a"])], Invalid::DuplicateId { at: 1, id: id("a") }),
            (vec![user("go"), asks(&[""])], Invalid::Nameless { at: 1 }),
            (vec![user("go"), named(&["a"], " ")], Invalid::Nameless { at: 1 }),
            (vec![user("\n")], Invalid::Empty { at: 0 }),
            (vec![system(" "), user("go")], Invalid::Empty { at: 0 }),
            (vec![user("go"), says("\n\n")], Invalid::Empty { at: 1 }),
            (vec![user("go"), system("late")], Invalid::LateSystem { at: 1 }),
            (vec![system("rules"), says("hello")], Invalid::NotTheUser { at: 1 }),
        ];
        for (messages, expected) in table {
            assert_eq!(validate(&messages), Err(expected));
        }
    }
}
