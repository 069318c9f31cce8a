//! Routes of calls that people decide about.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{
    caller::Caller,
    extract::{Body, Name, Query},
};
use crate::daemon::{
    desk::{ApprovalQuery, Desk},
    wire::{AnswerBody, Answered, ApiError, ApprovalDetail, ApprovalList},
};

/// Lists the calls that people are to decide about, the newest last.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", operation_id = "list_approvals", params(ApprovalQuery),
    responses((status = 200, body = ApprovalList)))]
pub(super) async fn list(
    State(desk): State<Arc<Desk>>,
    Query(query): Query<ApprovalQuery>,
) -> Result<Json<ApprovalList>, ApiError> {
    Ok(Json(desk.approvals(&query).await?))
}

/// Shows one with exactly what is approved: the diff or the command.
#[utoipa::path(get, path = "/v1/approvals/{approval}", tag = "approvals", operation_id = "show_approval",
    params(("approval" = String, Path)),
    responses((status = 200, body = ApprovalDetail)))]
pub(super) async fn show(
    State(desk): State<Arc<Desk>>,
    Name(approval): Name<String>,
) -> Result<Json<ApprovalDetail>, ApiError> {
    Ok(Json(desk.approval(&approval).await?))
}

/// Answers one, once. What was approved is that call alone, on what it touched and changed when it was asked about.
#[utoipa::path(post, path = "/v1/approvals/{approval}", tag = "approvals", operation_id = "answer_approval",
    params(("approval" = String, Path)), request_body = AnswerBody,
    responses((status = 200, body = Answered)))]
pub(super) async fn answer(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(approval): Name<String>,
    Body(body): Body<AnswerBody>,
) -> Result<Json<Answered>, ApiError> {
    Ok(Json(desk.answer(&approval, body, &caller.approver()?).await?))
}
