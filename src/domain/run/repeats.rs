//! Calls that fail again and again.
//!
//! A call is its tool and its arguments, whatever their order and spacing. It is forgotten when it succeeds, and all
//! are when something was changed: the next failure is then news.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde_json::Value;

use crate::domain::call::{Arguments, EffectClass, Failure, ToolCall, ToolResult};

/// Calls that are kept in mind; of more than these, the one that failed last is forgotten last.
const KEPT: usize = 64;

/// The calls that failed last time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Repeats(VecDeque<Failing>);

/// A call that failed last time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failing {
    call: u64,
    /// How often in a row.
    pub(super) times: u32,
    /// What it was told last.
    pub(super) error: Arc<str>,
}

impl Repeats {
    /// What is known of this call, if it failed last time.
    pub(super) fn of(&self, name: &str, arguments: &Arguments) -> Option<&Failing> {
        if self.0.is_empty() {
            return None;
        }
        let call = digest(name, arguments);
        self.0.iter().find(|failing| failing.call == call)
    }

    /// Takes a call's result; `effect` is what the call did to the world at most, if it was run.
    pub(super) fn take(&mut self, call: &ToolCall, effect: Option<EffectClass>, result: &ToolResult) {
        let is_kept = |failing: &Failing, call| failing.call == call;
        match (result.failure, effect) {
            (None, Some(EffectClass::Write | EffectClass::Outside)) => self.0.clear(),
            (None, Some(EffectClass::Read) | None) => {
                if !self.0.is_empty() {
                    let call = digest(&call.name, &call.arguments);
                    self.0.retain(|failing| !is_kept(failing, call));
                }
            }
            // What was refused for its failures has not failed again.
            (Some(Failure::Repeated), _) => {}
            (Some(failure), _) if failure.is_of_the_call() => {
                let call = digest(&call.name, &call.arguments);
                let known = self.0.iter().position(|failing| is_kept(failing, call));
                let times = known.and_then(|place| self.0.remove(place)).map_or(0, |failing| failing.times);
                self.0.truncate(KEPT - 1);
                self.0.push_front(Failing { call, times: times + 1, error: result.output.clone() });
            }
            (Some(_), _) => {}
        }
    }
}

/// Two calls that are the same have the same digest.
fn digest(name: &str, arguments: &Arguments) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    match serde_json::from_str::<Value>(arguments.as_str()) {
        Ok(value) => value.hash(&mut hasher),
        // Deeper than can be read: by its text.
        Err(_) => arguments.as_str().hash(&mut hasher),
    }
    hasher.finish()
}
