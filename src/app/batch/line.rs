//! The line that a task has in OUT. Every key is in every line, so that a table can be made of them.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Serialize;
use serde_json::Value;

use crate::{
    domain::{event::RunEnd, id::RunId, json::RawJson, task::TaskSpec, usage::Usage},
    tool::isolate::Change,
};

/// What came of a task: its latest attempt.
#[derive(Clone, Debug, Serialize)]
pub struct ResultLine<'a> {
    id: &'a str,
    run: String,
    attempt: u32,
    outcome: &'static str,
    detail: Option<&'static str>,
    text: &'a str,
    turns: u32,
    calls: u32,
    usage: Tokens,
    cost_usd: Option<f64>,
    queued_ms: u64,
    duration_ms: u64,
    active_ms: u64,
    error: Option<Cow<'a, str>>,
    labels: &'a BTreeMap<String, String>,
    meta: Option<&'a RawJson>,
    model: &'a str,
    branch: Option<String>,
    base: Option<String>,
    patch_path: Option<String>,
    files_changed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<Value>>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Tokens {
    input: u64,
    output: u64,
    cached: u64,
    estimated: bool,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        Self { input: usage.input, output: usage.output, cached: usage.cached, estimated: usage.estimated }
    }
}

impl<'a> ResultLine<'a> {
    /// The result of a run that was asked for by `spec` and ended as `end` says.
    pub fn new(run: RunId, spec: &'a TaskSpec, end: &'a RunEnd) -> Self {
        Self {
            id: spec.task_id.as_deref().unwrap_or_default(),
            run: run.to_string(),
            attempt: spec.attempt,
            outcome: end.outcome.as_str(),
            detail: end.outcome.detail(),
            text: &end.text,
            turns: end.turns,
            calls: end.calls,
            usage: end.usage.into(),
            cost_usd: end.usage.cost.map(|cost| cost.usd()),
            queued_ms: end.queued_us / 1_000,
            duration_ms: end.duration_us / 1_000,
            active_ms: end.active_us / 1_000,
            error: end.error.as_deref().map(Cow::Borrowed),
            labels: &spec.labels,
            meta: spec.meta.as_ref(),
            model: &spec.model,
            branch: None,
            base: None,
            patch_path: None,
            files_changed: None,
            messages: None,
        }
    }

    /// Adds what the run changed in a workspace of its own, or why that is not known.
    #[must_use]
    pub fn with_change(self, change: Option<Change>) -> Self {
        let Some(change) = change else { return self };
        let (files_changed, error) = (change.files(), change.with_error(self.error));
        let Change { branch, base, patch_path, .. } = change;
        Self { branch, base, patch_path, files_changed, error, ..self }
    }

    /// Adds the whole conversation.
    #[must_use]
    pub fn with_messages(self, messages: Vec<Value>) -> Self {
        Self { messages: Some(messages), ..self }
    }

    /// The line as it is written, its end included.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Every field has a JSON form; the fallback only keeps this total.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        outcome::{Limit, Outcome},
        usage::NanoUsd,
    };

    #[test]
    fn a_line_has_every_key_in_one_order() {
        let spec: TaskSpec = serde_json::from_str(
            r#"{"task": "t", "task_id": "a", "attempt": 2, "model": "m", "workspace": "/w", "labels": {"k": "v"}, "meta": {"z": 1,  "a": 2}}"#,
        )
        .expect("a spec");
        let end = RunEnd {
            outcome: Outcome::Budget(Limit::Turns),
            text: "so far".into(),
            error: None,
            turns: 3,
            calls: 4,
            usage: Usage { input: 10, output: 5, cost: Some(NanoUsd::new(1_500_000)), ..Usage::default() },
            queued_us: 1_999,
            duration_us: 20_000,
            active_us: 10_000,
        };
        let run = RunId::from_bytes([1; 16]);
        let line = serde_json::to_string(&ResultLine::new(run, &spec, &end)).expect("JSON");
        assert_eq!(
            line,
            concat!(
                r#"{"id":"a","run":"01010101-0101-0101-0101-010101010101","attempt":2,"outcome":"budget","#,
                r#""detail":"turns","text":"so far","turns":3,"calls":4,"#,
                r#""usage":{"input":10,"output":5,"cached":0,"estimated":false},"cost_usd":0.0015,"#,
                r#""queued_ms":1,"duration_ms":20,"active_ms":10,"error":null,"labels":{"k":"v"},"#,
                r#""meta":{"z": 1,  "a": 2},"model":"m","branch":null,"base":null,"patch_path":null,"files_changed":null}"#
            )
        );
    }
}
