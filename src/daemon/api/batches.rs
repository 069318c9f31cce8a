//! Routes of batches.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Json,
    body::{Body as RawBody, Bytes},
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    caller::Caller,
    created,
    extract::{Body, Name, Query, header},
};
use crate::{
    app::batches::Reading,
    daemon::{
        desk::Desk,
        wire::{
            ApiError, BatchList, BatchOptions, BatchPatch, BatchView, Changed, KEY_HEADER, Pause, Submitted,
        },
    },
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
    Ok(created(submitted.changed, format!("/v1/batches/{}", submitted.id), submitted))
}

/// Every batch, oldest first.
#[utoipa::path(get, path = "/v1/batches", tag = "batches", operation_id = "list_batches", responses((status = 200, body = BatchList)))]
pub(super) async fn list(State(desk): State<Arc<Desk>>) -> Json<BatchList> {
    Json(desk.list_batches().await)
}

/// How far a batch is.
#[utoipa::path(get, path = "/v1/batches/{batch}", tag = "batches", operation_id = "show_batch",
    params(("batch" = String, Path)),
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
    /// Pass over so many lines: those that the caller has had, replaced ones included.
    after: u32,
}

/// The results of a batch: one line for each task that has ended, in the order in which they did. A task that is done
/// again has another line, which replaces the one before. Where nothing comes for a while there are empty lines.
///
/// The order stays as long as the daemon does (`started_at` of its status). Another one has the lines in the order of
/// the ends on record, which may differ a little: whoever has to miss nothing reads from the first line again.
#[utoipa::path(get, path = "/v1/batches/{batch}/results", tag = "batches", operation_id = "read_results",
    params(("batch" = String, Path), ResultsQuery),
    responses((status = 200, body = String, content_type = "application/jsonl")))]
pub(super) async fn results(
    State(desk): State<Arc<Desk>>,
    Name(batch): Name<String>,
    Query(query): Query<ResultsQuery>,
) -> Result<Response, ApiError> {
    let ResultsQuery { follow, messages: with_messages, after } = query;
    let lines = desk
        .results(
            &batch,
            Reading { follow, with_messages, after: usize::try_from(after).unwrap_or(usize::MAX) },
        )
        .await?;
    Ok(([("content-type", "application/jsonl")], RawBody::from_stream(breathing(lines))).into_response())
}

/// How long nothing may come.
const SILENCE: Duration = Duration::from_secs(15);

/// The same, with an empty line whenever nothing has come for a while: whoever reads can tell it from a lost connection.
fn breathing<E: Send>(
    lines: impl Stream<Item = Result<Bytes, E>> + Send,
) -> impl Stream<Item = Result<Bytes, E>> + Send {
    stream::unfold(Box::pin(lines), |mut lines| async move {
        match tokio::time::timeout(SILENCE, lines.next()).await {
            Ok(line) => Some((line?, lines)),
            Err(_) => Some((Ok(Bytes::from_static(b"\n")), lines)),
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_tasks_are_named_one_by_one() {
        let read = |query: &str| serde_html_form::from_str::<BatchOptions>(query);
        let options = read("name=b&only=a&only=b%26c&first=3").expect("options");
        assert_eq!((options.only, options.first), (vec!["a".to_owned(), "b&c".to_owned()], Some(3)));
        assert_eq!(read("").expect("options"), BatchOptions::default());
        assert!(read("sole=a").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_given_a_sign_of_life_while_nothing_comes() {
        let lines = stream::once(async {
            tokio::time::sleep(Duration::from_secs(40)).await;
            Ok::<_, io::Error>(Bytes::from_static(b"{}\n"))
        });
        let read: Vec<_> = breathing(lines).map(|line| line.expect("a line")).collect().await;
        assert_eq!(read, ["\n", "\n", "{}\n"]);
    }
}
