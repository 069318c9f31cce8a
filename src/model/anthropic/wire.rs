//! The shapes of an answer in Messages: everything optional, nothing trusted.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::domain::usage::Usage;

/// One event of a stream.
#[derive(Debug, Default, Deserialize)]
pub(super) struct WireEvent {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) index: Option<i64>,
    pub(super) message: Option<WireMessage>,
    pub(super) content_block: Option<Box<RawValue>>,
    pub(super) delta: Option<WireDelta>,
    pub(super) usage: Option<Counts>,
    pub(super) error: Option<Value>,
}

/// A whole answer, or what is known of one at its start.
#[derive(Debug, Default, Deserialize)]
pub(super) struct WireMessage {
    pub(super) content: Option<Vec<Box<RawValue>>>,
    pub(super) stop_reason: Option<String>,
    pub(super) usage: Option<Counts>,
    pub(super) error: Option<Value>,
}

/// The start of a block, or the whole of it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct WireBlock {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) text: Option<String>,
    pub(super) thinking: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) input: Option<Box<RawValue>>,
}

/// More of a block, or of the answer itself.
#[derive(Debug, Default, Deserialize)]
pub(super) struct WireDelta {
    pub(super) text: Option<String>,
    pub(super) thinking: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) partial_json: Option<String>,
    pub(super) stop_reason: Option<String>,
}

/// Tokens so far. Each count covers the whole answer, so the largest one that came is the last.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Counts {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl Counts {
    pub(super) fn merge(&mut self, later: Self) {
        self.input_tokens = self.input_tokens.max(later.input_tokens);
        self.cache_read_input_tokens = self.cache_read_input_tokens.max(later.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            self.cache_creation_input_tokens.max(later.cache_creation_input_tokens);
        self.output_tokens = self.output_tokens.max(later.output_tokens);
    }

    /// What was used, if the server said anything of it.
    pub(super) fn usage(self) -> Option<Usage> {
        let said = [
            self.input_tokens,
            self.cache_read_input_tokens,
            self.cache_creation_input_tokens,
            self.output_tokens,
        ];
        let [fresh, cached, cache_written, output] = said.map(Option::unwrap_or_default);
        said.iter().any(Option::is_some).then(|| Usage {
            input: fresh.saturating_add(cached).saturating_add(cache_written),
            output,
            cached,
            cache_written,
            ..Usage::default()
        })
    }
}
