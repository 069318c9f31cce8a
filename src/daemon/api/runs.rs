//! Routes of runs.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    caller::Caller,
    created,
    extract::{Body, Name, Query, Text, header},
};
use crate::{
    daemon::{
        desk::{Desk, RunQuery},
        wire::{
            ApiError, Changed, Continue, KEY_HEADER, Requeued, RunDetail, RunList, RunPatch, Say, Submitted,
            TaskBody,
        },
    },
    domain::event::InputKind,
};

/// Submits one task. Answered once it is on disk.
#[utoipa::path(post, path = "/v1/runs", tag = "runs", operation_id = "submit_run", request_body = TaskBody,
    params(("idempotency-key" = Option<String>, Header, description = "The same key again submits nothing again", min_length = 1, max_length = 256)),
    responses((status = 201, body = Submitted), (status = 200, description = "It was there already", body = Submitted)))]
pub(super) async fn submit(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    headers: HeaderMap,
    Text(body): Text,
) -> Result<Response, ApiError> {
    let by = caller.operator()?;
    let submitted = desk.submit(body, header(&headers, KEY_HEADER)?, &by).await?;
    Ok(created(submitted.changed, format!("/v1/runs/{}", submitted.id), submitted))
}

/// Lists runs, the newest last, with the counts of all that match.
#[utoipa::path(get, path = "/v1/runs", tag = "runs", operation_id = "list_runs", params(RunQuery),
    responses((status = 200, body = RunList)))]
pub(super) async fn list(
    State(desk): State<Arc<Desk>>,
    Query(query): Query<RunQuery>,
) -> Result<Json<RunList>, ApiError> {
    Ok(Json(desk.list(&query).await?))
}

/// What is shown of a run.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ShowQuery {
    /// With the whole conversation.
    messages: bool,
}

/// Shows a run.
#[utoipa::path(get, path = "/v1/runs/{run}", tag = "runs", operation_id = "show_run",
    params(("run" = String, Path), ShowQuery),
    responses((status = 200, body = RunDetail)))]
pub(super) async fn show(
    State(desk): State<Arc<Desk>>,
    Name(run): Name<String>,
    Query(query): Query<ShowQuery>,
) -> Result<Json<RunDetail>, ApiError> {
    Ok(Json(desk.show(&run, query.messages).await?))
}

/// What a run changed in a workspace of its own, as a patch that `git apply` takes.
#[utoipa::path(get, path = "/v1/runs/{run}/patch", tag = "runs", operation_id = "show_patch", params(("run" = String, Path)),
    responses((status = 200, body = String, content_type = "text/x-diff")))]
pub(super) async fn patch(
    State(desk): State<Arc<Desk>>,
    Name(run): Name<String>,
) -> Result<Response, ApiError> {
    Ok(([("content-type", "text/x-diff")], desk.patch(&run).await?).into_response())
}

/// Changes the limits of a run that has not ended.
#[utoipa::path(patch, path = "/v1/runs/{run}", tag = "runs", operation_id = "change_run", params(("run" = String, Path)), request_body = Option<RunPatch>,
    responses((status = 200, body = Changed)))]
pub(super) async fn retune(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(run): Name<String>,
    Body(patch): Body<RunPatch>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.retune(&run, &patch, &caller.operator()?).await?))
}

/// Ends a run as cancelled.
#[utoipa::path(post, path = "/v1/runs/{run}/cancel", tag = "runs", operation_id = "cancel_run", params(("run" = String, Path)),
    responses((status = 200, body = Changed)))]
pub(super) async fn cancel(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(run): Name<String>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.cancel(&run, &caller.operator()?).await?))
}

/// Holds a run before its next request; it gives its slot up.
#[utoipa::path(post, path = "/v1/runs/{run}/pause", tag = "runs", operation_id = "pause_run", params(("run" = String, Path)),
    responses((status = 200, body = Changed)))]
pub(super) async fn pause(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(run): Name<String>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.pause(&run, &caller.operator()?).await?))
}

/// Lets a paused run go on.
#[utoipa::path(post, path = "/v1/runs/{run}/resume", tag = "runs", operation_id = "resume_run", params(("run" = String, Path)),
    responses((status = 200, body = Changed)))]
pub(super) async fn resume(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(run): Name<String>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.resume(&run, &caller.operator()?).await?))
}

/// Says something to a run that it is shown after the tools of its running turn.
#[utoipa::path(post, path = "/v1/runs/{run}/steer", tag = "runs", operation_id = "steer_run", params(("run" = String, Path), ("idempotency-key" = Option<String>, Header, description = "The same key again says nothing again", min_length = 1, max_length = 256)), request_body = Say,
    responses((status = 200, body = Changed)))]
pub(super) async fn steer(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(run): Name<String>,
    headers: HeaderMap,
    Body(say): Body<Say>,
) -> Result<Json<Changed>, ApiError> {
    let key = header(&headers, KEY_HEADER)?;
    Ok(Json(desk.say(&run, InputKind::Steer, say, key, &caller.operator()?).await?))
}

/// Says something to a run that it is shown when it would otherwise be done.
#[utoipa::path(post, path = "/v1/runs/{run}/follow-up", tag = "runs", operation_id = "follow_up_run", params(("run" = String, Path), ("idempotency-key" = Option<String>, Header, description = "The same key again says nothing again", min_length = 1, max_length = 256)), request_body = Say,
    responses((status = 200, body = Changed)))]
pub(super) async fn follow_up(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(run): Name<String>,
    headers: HeaderMap,
    Body(say): Body<Say>,
) -> Result<Json<Changed>, ApiError> {
    let key = header(&headers, KEY_HEADER)?;
    Ok(Json(desk.say(&run, InputKind::FollowUp, say, key, &caller.operator()?).await?))
}

/// Goes on from a run that has ended: a new run, with all that was said in it. Answered once it is on disk.
#[utoipa::path(post, path = "/v1/runs/{run}/continue", tag = "runs", operation_id = "continue_run", params(("run" = String, Path), ("idempotency-key" = Option<String>, Header, description = "The same key again submits nothing again", min_length = 1, max_length = 256)), request_body = Continue,
    responses((status = 201, body = Submitted), (status = 200, description = "It was there already", body = Submitted)))]
pub(super) async fn go_on(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(run): Name<String>,
    headers: HeaderMap,
    Body(next): Body<Continue>,
) -> Result<Response, ApiError> {
    let key = header(&headers, KEY_HEADER)?;
    let submitted = desk.go_on_from(&run, next, key, &caller.operator()?).await?;
    Ok(created(submitted.changed, format!("/v1/runs/{}", submitted.id), submitted))
}

/// Gives the task of a run that has ended another attempt.
#[utoipa::path(post, path = "/v1/runs/{run}/requeue", tag = "runs", operation_id = "requeue_run", params(("run" = String, Path)),
    responses((status = 201, body = Requeued), (status = 200, description = "It has one already", body = Requeued)))]
pub(super) async fn requeue(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(run): Name<String>,
) -> Result<Response, ApiError> {
    let requeued = desk.requeue(&run, &caller.operator()?).await?;
    Ok(created(requeued.changed, format!("/v1/runs/{}", requeued.id), requeued))
}

/// Ends one call of a run; the run goes on.
#[utoipa::path(post, path = "/v1/runs/{run}/calls/{call}/cancel", tag = "runs", operation_id = "cancel_call",
    params(("run" = String, Path), ("call" = String, Path)),
    responses((status = 200, body = Changed)))]
pub(super) async fn cancel_call(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name((run, call)): Name<(String, String)>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.cancel_call(&run, &call, &caller.operator()?).await?))
}
