//! Changes are seen through, whether or not whoever asked for them waits for the answer.
//!
//! A connection that is closed takes its request with it, wherever that stood: a run could be on disk and in nobody's
//! hands, or a change made and not put on record.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use crate::daemon::{
    desk::Desk,
    wire::{ApiError, Code},
};

pub(super) async fn see_through(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    match desk.work().spawn(next.run(request)).await {
        Ok(response) => response,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => ApiError::new(Code::Unavailable, "the daemon is stopping").into_response(),
        },
    }
}
