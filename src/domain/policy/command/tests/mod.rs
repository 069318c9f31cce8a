//! What a line is split into, what is said of it, and that nothing gets past.

use super::super::{Policy, Subject, Verdict};
use crate::domain::call::EffectClass;

mod bypasses;
mod hostile;
mod lines;

/// Rules with a list of what is allowed, and all else asked.
const LISTED: &str = r#"{ "name": "listed", "rule": [
    { "command": ["rm", "git push"], "decision": "deny" },
    { "command": ["curl"], "decision": "ask", "reason": "the net" },
    { "command": ["git status", "cat", "echo", "grep", "make test $", "cd", "true", "test", "[", "find", "printf", "local"], "decision": "allow" },
    { "decision": "ask" }
] }"#;

/// Rules with a list of what is forbidden, and all else allowed.
const OPEN: &str = r#"{ "name": "open", "rule": [
    { "command": ["rm"], "decision": "deny" },
    { "command": ["curl"], "decision": "ask" },
    { "decision": "allow" }
] }"#;

fn judge(policy: &str, line: &str) -> (Verdict, String) {
    let policy: Policy = serde_json::from_str(policy).unwrap();
    policy.judge(&Subject {
        tool: "bash",
        effect: EffectClass::Outside,
        paths: &[""],
        command: Some(line),
        arguments: None,
    })
}
