//! Routes of the daemon itself: pauses, models, configuration, its end, its record.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{
    caller::Caller,
    extract::{Body, Name, Query},
};
use crate::{
    daemon::{
        desk::{AuditQuery, Desk, StatsQuery},
        wire::{
            ApiError, AuditList, Changed, ConfigPatch, ConfigView, ModelList, Pause, Prune, PruneReport,
            ReloadReport, StatsList, Status, Stop,
        },
    },
    domain::gate::Scope,
};

/// Models that runs can ask.
#[utoipa::path(get, path = "/v1/models", tag = "daemon", operation_id = "list_models", responses((status = 200, body = ModelList)))]
pub(super) async fn models(State(desk): State<Arc<Desk>>) -> Result<Json<ModelList>, ApiError> {
    Ok(Json(desk.models().await))
}

/// Pauses the runs that ask a model.
#[utoipa::path(post, path = "/v1/models/{model}/pause", tag = "daemon", operation_id = "pause_model", params(("model" = String, Path)),
    request_body = Option<Pause>, responses((status = 200, body = Changed)))]
pub(super) async fn pause_model(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(model): Name<String>,
    Body(pause): Body<Pause>,
) -> Result<Json<Changed>, ApiError> {
    let scope = desk.model_scope(&model)?;
    Ok(Json(desk.shut(scope, pause.mode, &caller.operator()?).await?))
}

/// Lets the runs that ask a model go on, and opens its account if that is shut: runs that waited for quota or another key go on at once.
#[utoipa::path(post, path = "/v1/models/{model}/resume", tag = "daemon", operation_id = "resume_model", params(("model" = String, Path)),
    responses((status = 200, body = Changed)))]
pub(super) async fn resume_model(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Name(model): Name<String>,
) -> Result<Json<Changed>, ApiError> {
    let scope = desk.model_scope(&model)?;
    Ok(Json(desk.release(scope, &caller.operator()?).await?))
}

/// Pauses everything.
#[utoipa::path(post, path = "/v1/pause", tag = "daemon", operation_id = "pause_all", request_body = Option<Pause>,
    responses((status = 200, body = Changed)))]
pub(super) async fn pause(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Body(pause): Body<Pause>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.shut(Scope::All, pause.mode, &caller.operator()?).await?))
}

/// Lets everything go on that is not paused by itself.
#[utoipa::path(post, path = "/v1/resume", tag = "daemon", operation_id = "resume_all", responses((status = 200, body = Changed)))]
pub(super) async fn resume(State(desk): State<Arc<Desk>>, caller: Caller) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.release(Scope::All, &caller.operator()?).await?))
}

/// The configuration in force, without secrets.
#[utoipa::path(get, path = "/v1/config", tag = "daemon", operation_id = "show_config", responses((status = 200, body = ConfigView)))]
pub(super) async fn config(State(desk): State<Arc<Desk>>) -> Json<ConfigView> {
    Json(desk.config_view())
}

/// Changes the configuration until the daemon stops.
#[utoipa::path(patch, path = "/v1/config", tag = "daemon", operation_id = "change_config", request_body = Option<ConfigPatch>,
    responses((status = 200, body = Changed)))]
pub(super) async fn change_config(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Body(patch): Body<ConfigPatch>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.change_config(&patch, &caller.operator()?).await?))
}

/// Reads the configuration again.
#[utoipa::path(post, path = "/v1/reload", tag = "daemon", operation_id = "reload_config", responses((status = 200, body = ReloadReport)))]
pub(super) async fn reload(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
) -> Result<Json<ReloadReport>, ApiError> {
    Ok(Json(desk.reload(&caller.operator()?).await?))
}

/// Takes old runs off the record, and what they left. A request that takes long is seen through if its connection ends.
#[utoipa::path(post, path = "/v1/prune", tag = "daemon", operation_id = "prune", request_body = Prune,
    responses((status = 200, body = PruneReport)))]
pub(super) async fn prune(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Body(prune): Body<Prune>,
) -> Result<Json<PruneReport>, ApiError> {
    Ok(Json(desk.prune(prune, &caller.operator()?).await?))
}

/// Stops the daemon: runs end their turn, and go on at the next start.
#[utoipa::path(post, path = "/v1/stop", tag = "daemon", operation_id = "stop", request_body = Option<Stop>,
    responses((status = 200, body = Changed)))]
pub(super) async fn stop(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Body(stop): Body<Stop>,
) -> Result<Json<Changed>, ApiError> {
    Ok(Json(desk.ask_to_stop(stop.now, &caller.operator()?)))
}

/// The daemon in one look.
#[utoipa::path(get, path = "/v1/status", tag = "daemon", operation_id = "show_status", responses((status = 200, body = Status)))]
pub(super) async fn status(State(desk): State<Arc<Desk>>) -> Json<Status> {
    Json(desk.status().await)
}

/// What runs came to, by group.
#[utoipa::path(get, path = "/v1/stats", tag = "daemon", operation_id = "show_stats", params(StatsQuery),
    responses((status = 200, body = StatsList)))]
pub(super) async fn stats(
    State(desk): State<Arc<Desk>>,
    Query(query): Query<StatsQuery>,
) -> Result<Json<StatsList>, ApiError> {
    Ok(Json(desk.stats(&query).await?))
}

/// Who asked for which change.
#[utoipa::path(get, path = "/v1/audit", tag = "daemon", operation_id = "list_audit", params(AuditQuery),
    responses((status = 200, body = AuditList)))]
pub(super) async fn audit(
    State(desk): State<Arc<Desk>>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<AuditList>, ApiError> {
    Ok(Json(desk.audit_list(&query).await?))
}
