//! A change that may have been made by somebody who is gone: what the file says about it.

use std::sync::Arc;

use crate::{
    domain::{call::Failure, event::FileChange},
    tool::{
        Output,
        workspace::{ChangeState, Workspace, change_state},
    },
};

/// How a call that was to make `change` has ended; absent if it was not made, and so may be made now.
pub(in crate::actor) async fn settle(workspace: &Arc<Workspace>, change: &FileChange) -> Option<Output> {
    let path = &change.path;
    match change_state(workspace, change).await {
        ChangeState::Made => Some(Output::ok(format!(
            "done: {path} has the content that this call gives it (made before an interruption)"
        ))),
        ChangeState::NotMade => None,
        ChangeState::Unknown => Some(Output::failed(
            Failure::OutcomeUnknown,
            format!(
                "outcome unknown: interrupted. {path} is neither as it was before this call nor as the call leaves it. \
                 Read it again."
            ),
        )),
    }
}
