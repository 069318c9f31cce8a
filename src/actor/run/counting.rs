//! What the facts of runs come to in the metrics.

use crate::{
    domain::event::{Event, Fact},
    telemetry::metric,
};

/// Counts a fact that is new.
pub(super) fn count(fact: &Fact) {
    match &fact.event {
        Event::RunStart(_) => metrics::counter!(metric::RUNS_STARTED).increment(1),
        Event::TurnStart(_) => metrics::counter!(metric::TURNS).increment(1),
        Event::Message(reply) => {
            metrics::counter!(metric::TOKENS_INPUT).increment(reply.usage.input);
            metrics::counter!(metric::TOKENS_OUTPUT).increment(reply.usage.output);
        }
        Event::ModelRetry(retry) => {
            metrics::counter!(metric::MODEL_RETRIES, "class" => retry.class.as_str()).increment(1)
        }
        Event::Result(result) => {
            metrics::counter!(metric::TOOL_CALLS, "ok" => metric::ok(result.ok)).increment(1);
        }
        Event::RunEnd(end) => {
            metrics::counter!(metric::RUNS_ENDED, "outcome" => end.outcome.as_str()).increment(1)
        }
        Event::Submitted(_)
        | Event::RequestSent(_)
        | Event::RequestLost(_)
        | Event::ModelSwitched(_)
        | Event::Correction(_)
        | Event::Decision(_)
        | Event::ApprovalRequested(_)
        | Event::ApprovalResolved(_)
        | Event::CommandGroup(_)
        | Event::CallStarted(_)
        | Event::TurnEnd(_)
        | Event::InputQueued(_)
        | Event::InputClaimed(_)
        | Event::LimitsSet(_)
        | Event::CancelRequested(_)
        | Event::Paused(_)
        | Event::Resumed(_)
        | Event::Parked(_)
        | Event::Unparked(_)
        | Event::Interrupted(_)
        | Event::Restart(_) => {}
    }
}
