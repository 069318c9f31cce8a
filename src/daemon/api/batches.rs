//! Routes of batches.

use std::{io, sync::Arc};

use axum::{
    Json,
    body::Body as RawBody,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use futures_util::StreamExt as _;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    caller::Caller,
    created,
    extract::{Body, Name, Query, header},
};
use crate::daemon::{
    desk::Desk,
    wire::{ApiError, BatchList, BatchOptions, BatchPatch, BatchView, Changed, KEY_HEADER, Pause, Submitted},
};

/// Submits a batch: one task a line. Answered once all of it is on disk. With a key of a batch that is there, it is that
/// one; more lines are added to it once it has ended.
#[utoipa::path(post, path = "/v1/batches", tag = "batches", operation_id = "submit_batch",
    request_body(content = String, content_type = "application/jsonl", description = "JSON lines, of any number and size"),
    params(BatchOptions, ("idempotency-key" = Option<String>, Header, description = "The same key again is the same batch", min_length = 1, max_length = 256)),
    responses((status = 201, body = Submitted), (status = 200, description = "It was there already", body = Submitted)))]
pub(super) async fn submit(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Query(options): Query<BatchOptions>,
    headers: HeaderMap,
    body: RawBody,
) -> Result<Response, ApiError> {
    let by = caller.operator()?;
    let input = body.into_data_stream().map(|piece| piece.map_err(io::Error::other));
    let submitted = desk.submit_batch(options, header(&headers, KEY_HEADER)?, input, &by).await?;
    Ok(created(submitted.changed, submitted))
}

/// Every batch, oldest first.
#[utoipa::path(get, path = "/v1/batches", tag = "batches", operation_id = "list_batches", responses((status = 200, body = BatchList)))]
pub(super) async fn list(State(desk): State<Arc<Desk>>) -> Json<BatchList> {
    Json(desk.list_batches().await)
}

/// How far a batch is.
#[utoipa::path(get, path = "/v1/batches/{batch}", tag = "batches", operation_id = "show_batch",
    params(("batch" = String, Path, description = "A batch's id, a unique beginning of it, or its name")),
    responses((status = 200, body = BatchView)))]
pub(super) async fn show(
    State(desk): State<Arc<Desk>>,
    Name(batch): Name<String>,
) -> Result<Json<BatchView>, ApiError> {
    Ok(Json(desk.show_batch(&batch).await?))
}

/// Changes how a batch is worked on.
#[utoipa::path(patch, path = "/v1/batches/{batch}", tag = "batches", operation_id = "change_batch", params(("batch" = String, Path)),
    request_body = Option<BatchPatch>, responses((status = 200, body = Changed)))]
pub(super) async fn retune(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(batch): Name<String>,
    Body(patch): Body<BatchPatch>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.retune_batch(&batch, &patch, &caller.operator()?).await?))
}

/// How results are read.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ResultsQuery {
    /// Go on as they come, until the batch has ended.
    follow: bool,
    /// With the whole conversation of each.
    messages: bool,
}

/// The results of a batch: one line for each task that has ended, in the order in which they did.
#[utoipa::path(get, path = "/v1/batches/{batch}/results", tag = "batches", operation_id = "read_results",
    params(("batch" = String, Path), ResultsQuery),
    responses((status = 200, body = String, content_type = "application/jsonl")))]
pub(super) async fn results(
    State(desk): State<Arc<Desk>>,
    Name(batch): Name<String>,
    Query(query): Query<ResultsQuery>,
) -> Result<Response, ApiError> {
    let lines = desk.results(&batch, query.follow, query.messages).await?;
    Ok(([("content-type", "application/jsonl")], RawBody::from_stream(lines)).into_response())
}

/// Ends a batch and its runs as cancelled.
#[utoipa::path(post, path = "/v1/batches/{batch}/cancel", tag = "batches", operation_id = "cancel_batch", params(("batch" = String, Path)),
    responses((status = 200, body = Changed)))]
pub(super) async fn cancel(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(batch): Name<String>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.cancel_batch(&batch, &caller.operator()?).await?))
}

/// Pauses a batch.
#[utoipa::path(post, path = "/v1/batches/{batch}/pause", tag = "batches", operation_id = "pause_batch", params(("batch" = String, Path)),
    request_body = Option<Pause>, responses((status = 200, body = Changed)))]
pub(super) async fn pause(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(batch): Name<String>,
    Body(pause): Body<Pause>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.pause_batch(&batch, pause.mode, &caller.operator()?).await?))
}

/// Lets a batch go on.
#[utoipa::path(post, path = "/v1/batches/{batch}/resume", tag = "batches", operation_id = "resume_batch", params(("batch" = String, Path)),
    responses((status = 200, body = Changed)))]
pub(super) async fn resume(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(batch): Name<String>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.resume_batch(&batch, &caller.operator()?).await?))
}
