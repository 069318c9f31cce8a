//! The spans of herder's work. Their fields are ids and names, never what was said.

use tracing::Span;

use crate::domain::id::{CallId, RunId};

/// Everything that is done for one run.
pub fn run(run: RunId) -> Span {
    tracing::info_span!("run", run.id = %run)
}

/// One request to a model, from sending it to the end of its answer.
pub fn model_request(model: &str, turn: u32) -> Span {
    tracing::info_span!("model.request", model.name = model, turn)
}

/// One tool call, from its grant to its result.
pub fn tool_call(call: &CallId, tool: &str) -> Span {
    tracing::info_span!("tool.call", call.id = %call, tool.name = tool)
}

/// One commit of the log.
pub fn store_append() -> Span {
    tracing::debug_span!("store.append")
}
