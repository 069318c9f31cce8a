//! The names of all metrics, each with its kind, unit and help.
//!
//! A label's value comes from a closed set: an `as_str()` of an enum, [`ok`], or the name of an account in the
//! configuration. Never an id, a path or a message.

use metrics::Unit;

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $kind:ident $unit:ident $name:ident = $text:literal;)+) => {
        $($(#[doc = $help])+ pub const $name: &str = concat!(env!("CARGO_CRATE_NAME"), "_", $text);)+

        /// Every metric there is.
        pub const ALL: &[Metric] = &[
            $(Metric { name: $name, kind: Kind::$kind, unit: Unit::$unit, help: concat!($($help),+).trim_ascii() }),+
        ];
    };
}

/// How a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts how often each size was seen.
    Histogram,
}

/// One metric, described.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub help: &'static str,
}

metrics! {
    /// Runs that got their slot.
    Counter Count RUNS_STARTED = "runs_started_total";
    /// Runs that ended, by `outcome`.
    Counter Count RUNS_ENDED = "runs_ended_total";
    /// Runs that are live.
    Gauge Count RUNS_LIVE = "runs_live";
    /// Runs that wait for a slot.
    Gauge Count RUNS_QUEUED = "runs_queued";
    /// Runs that are paused or behind a gate, without a slot.
    Gauge Count RUNS_HELD = "runs_held";
    /// Dollars spent in budgets, by `kind`.
    Gauge Count BUDGET_SPENT = "budget_spent_usd";
    /// Dollars reserved in budgets by requests in flight, by `kind`.
    Gauge Count BUDGET_RESERVED = "budget_reserved_usd";
    /// Dollars that budgets allow together, by `kind`; 0 is no limit.
    Gauge Count BUDGET_CAP = "budget_cap_usd";
    /// Restarts of runs whose actor had died.
    Counter Count RUN_RESTARTS = "run_restarts_total";
    /// Turns that began.
    Counter Count TURNS = "turns_total";
    /// Model requests that ended, by `class`: `ok`, or the class of the failure.
    Counter Count MODEL_REQUESTS = "model_requests_total";
    /// Seconds from a model request to the end of its answer.
    Histogram Seconds MODEL_REQUEST_SECONDS = "model_request_seconds";
    /// Seconds from a model request to the first piece of its answer.
    Histogram Seconds MODEL_FIRST_TOKEN_SECONDS = "model_first_token_seconds";
    /// Model requests that are sent again, by the `class` of the failure before.
    Counter Count MODEL_RETRIES = "model_retries_total";
    /// Requests that may be out at once, by `account`; 0 where there is no limit.
    Gauge Count ACCOUNT_LIMIT = "account_limit";
    /// Places that are taken, in back-off too, by `account`.
    Gauge Count ACCOUNT_IN_FLIGHT = "account_in_flight";
    /// Turns that wait for a place, by `account`.
    Gauge Count ACCOUNT_WAITING = "account_waiting";
    /// 1 while nothing is sent to the account, by `account`.
    Gauge Count ACCOUNT_LATCHED = "account_latched";
    /// Times that the limit was cut, by `account`.
    Counter Count ACCOUNT_CUTS = "account_cuts_total";
    /// Tokens sent to models.
    Counter Count TOKENS_INPUT = "tokens_input_total";
    /// Tokens that models answered.
    Counter Count TOKENS_OUTPUT = "tokens_output_total";
    /// Tool calls that ended, by `effect` and `ok`.
    Counter Count TOOL_CALLS = "tool_calls_total";
    /// Calls that hold their locks.
    Gauge Count TOOL_CALLS_RUNNING = "tool_calls_running";
    /// Calls that wait for their locks or their permit.
    Gauge Count TOOL_CALLS_WAITING = "tool_calls_waiting";
    /// Seconds that a call waited for its locks and its permit, by `effect`.
    Histogram Seconds LOCK_WAIT_SECONDS = "lock_wait_seconds";
    /// Seconds that a call held its locks, by `effect`.
    Histogram Seconds LOCK_HOLD_SECONDS = "lock_hold_seconds";
    /// Seconds that one commit of the log takes.
    Histogram Seconds STORE_COMMIT_SECONDS = "store_commit_seconds";
    /// Requests that share one commit of the log.
    Histogram Count STORE_COMMIT_REQUESTS = "store_commit_requests";
    /// 1 while the log takes nothing, most often because its disk is full.
    Gauge Count STORE_STUCK = "store_stuck";
    /// Bytes of the log's files.
    Gauge Bytes STORE_BYTES = "store_bytes";
}

/// The label `ok`.
pub const fn ok(ok: bool) -> &'static str {
    if ok { "true" } else { "false" }
}

/// Tells the recorder in force the unit and the help of every metric.
pub fn describe() {
    for metric in ALL {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.unit, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.unit, metric.help),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.unit, metric.help),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_kind_and_unit_and_is_there_once() {
        let mut seen = std::collections::BTreeSet::new();
        for metric in ALL {
            assert!(seen.insert(metric.name), "{} is there twice", metric.name);
            assert!(metric.name.starts_with("herder_"));
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert_eq!(metric.unit == Unit::Seconds, metric.name.ends_with("_seconds"), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{} has no help", metric.name);
        }
    }
}
