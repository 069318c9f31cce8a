//! What goes over the socket: the shapes that the daemon and its clients share, and their OpenAPI description.
//!
//! A public format: fields and kinds are added, never renamed, and whoever reads ignores what they do not know. Times are
//! RFC 3339 in UTC; durations carry their unit in their name; money is US dollars.

mod approval;
mod batch;
mod control;
mod error;
mod event;
mod model;
mod number;
mod request;
mod run;
mod schema;
mod task;

pub use approval::{
    AnswerBody, Answered, ApprovalDetail, ApprovalList, ApprovalView, ResolutionKind, ResolutionView,
    Verdict, approvals,
};
pub use batch::{BatchList, BatchOptions, BatchPatch, BatchState, BatchView, BatchWait, WaitReason};
pub use control::{
    AuditEntry, AuditList, Changed, ConfigPatch, ConfigView, Gate, GateKind, Health, Load, Pause, PauseMode,
    Prune, PruneReport, Rates, ReloadReport, StatsList, StatsRow, Status, Stop,
};
pub use error::{ApiError, Code};
pub use event::{EventView, StreamEvent};
pub use model::{BudgetKind, BudgetView, KeyState, Latch, LatchReason, ModelList, ModelLoad, ModelView};
pub use request::{RequestEnd, RequestView, requests};
pub use run::{
    CallView, Continue, Counts, Requeued, RunDetail, RunList, RunPatch, RunState, RunView, Say, Submitted,
    Tokens,
};
pub(super) use schema::{kinds, labels, outcome_or_detail};
pub use task::{TaskBody, TaskLimits, TaskParams};

/// The version of the API. Client and daemon must have the same.
pub const API_VERSION: u32 = 1;

/// The header in which each side says the version it speaks.
pub const VERSION_HEADER: &str = "herder-api";

/// The header that makes a submission safe to repeat.
pub const KEY_HEADER: &str = "idempotency-key";

/// The header in which a client says what it is, for the audit log.
pub const CLIENT_HEADER: &str = "user-agent";
