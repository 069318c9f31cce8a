//! A command that ends when the test says so: what must be under way while something else happens is held up by it, at
//! whatever speed either goes.

use std::fs;

use serde_json::{Value, json};

use crate::process::{House, task};

/// A turn that ends once the gate is open. Until then its command has the run's workspace to itself.
pub(crate) fn turn(house: &House) -> Value {
    let command = format!("until [ -e '{}' ]; do sleep 0.05; done", house.path("open").display());
    json!({"calls": [{"name": "bash", "arguments": {"command": command, "timeout_s": 3600}}]})
}

/// A task that waits at the gate, takes so many turns more, and is then done.
pub(crate) fn task_behind(house: &House, id: &str, more: usize) -> Value {
    let mut script = vec![turn(house)];
    script.extend(vec![json!({"calls": [{"name": "list", "arguments": {}}]}); more]);
    script.push(json!({"text": "ready"}));
    task(house, id, script.into())
}

pub(crate) fn open(house: &House) {
    fs::write(house.path("open"), "").unwrap();
}
