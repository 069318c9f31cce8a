//! Whether the daemon lives, whether it takes work, and its metrics.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};

use crate::daemon::{
    desk::{Desk, Phase},
    wire::{ApiError, Code, Health},
};

/// Whether it lives: its actors answer.
#[utoipa::path(get, path = "/healthz", tag = "daemon", operation_id = "check_live",
    responses((status = 200, body = Health)))]
pub(super) async fn live(State(desk): State<Arc<Desk>>) -> Result<Json<Health>, ApiError> {
    if desk.alive().await {
        Ok(Json(Health { status: "ok".to_owned() }))
    } else {
        Err(ApiError::new(Code::Unavailable, "the supervisor does not answer"))
    }
}

/// Whether it takes work.
#[utoipa::path(get, path = "/readyz", tag = "daemon", operation_id = "check_ready",
    responses((status = 200, body = Health)))]
pub(super) async fn ready(State(desk): State<Arc<Desk>>) -> Result<Json<Health>, ApiError> {
    match desk.phase() {
        Phase::Ready => match desk.log_trouble() {
            None => Ok(Json(Health { status: "ok".to_owned() })),
            Some(trouble) => Err(ApiError::new(Code::Unavailable, trouble)),
        },
        phase @ (Phase::Starting | Phase::Stopping) => {
            Err(ApiError::new(Code::Unavailable, format!("the daemon is {}", phase.as_str())))
        }
    }
}

/// Metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "daemon", operation_id = "read_metrics",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(desk): State<Arc<Desk>>) -> Response {
    let page = desk.metrics();
    (StatusCode::OK, [("content-type", "text/plain; version=0.0.4")], page).into_response()
}
