//! Routes of events: server-sent, resumable, never at the cost of a run.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body::Body,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use futures_util::StreamExt as _;
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{Name, Query, header};
use crate::{
    daemon::{
        desk::Desk,
        hub::{Deltas, EventStream, Filter, Kinds},
        wire::{ApiError, Code, StreamEvent, kinds},
    },
    domain::id::{Pos, Seq},
};

/// The header with which a client goes on from where it was.
const LAST_EVENT_ID: &str = "last-event-id";

/// Which events of a run are wanted.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunEvents {
    /// Those after this place; the header `Last-Event-ID` goes before it.
    after: Option<u64>,
    /// Text as it is spoken, too.
    live: bool,
}

/// Follows one run until it ends. The id of an event is its place in the run's log; give it as `Last-Event-ID` to go on.
#[utoipa::path(get, path = "/v1/runs/{run}/events", tag = "events", operation_id = "follow_run",
    params(("run" = String, Path), ("last-event-id" = Option<u64>, Header), RunEvents),
    responses((status = 200, body = StreamEvent, content_type = "text/event-stream")))]
pub(super) async fn of_run(
    State(desk): State<Arc<Desk>>,
    Name(run): Name<String>,
    Query(query): Query<RunEvents>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let wanted = query.after.map(|after| place("after", &after.to_string())).transpose()?;
    let after = Seq::new(after(&headers, wanted)?);
    let run = desk.run_named(&run).await?;
    desk.check_reached(run, after).await?;
    Ok(answer(desk.hub().run(run, after, deltas(query.live))))
}

/// Which events of all runs are wanted.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AllEvents {
    /// Those after this place; the header `Last-Event-ID` goes before it. `now`: those that come.
    #[param(pattern = "^([0-9]{1,18}|now)$", example = "now")]
    after: Option<String>,
    /// Only those of this batch's runs.
    batch: Option<String>,
    /// Only those of these kinds, with commas between.
    #[param(schema_with = kinds, example = "turn_end,run_end")]
    kinds: Option<String>,
    /// Text as it is spoken, too.
    live: bool,
}

/// Follows all runs. The id of an event is its place in the store; give it as `Last-Event-ID` to go on.
#[utoipa::path(get, path = "/v1/events", tag = "events", operation_id = "follow_all",
    params(("last-event-id" = Option<u64>, Header), AllEvents),
    responses((status = 200, body = StreamEvent, content_type = "text/event-stream")))]
pub(super) async fn of_all(
    State(desk): State<Arc<Desk>>,
    Query(query): Query<AllEvents>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let wanted = match query.after.as_deref() {
        None => None,
        Some("now") => Some(desk.head().get()),
        Some(text) => Some(place("after", text)?),
    };
    let after = Pos::new(after(&headers, wanted)?);
    if after > desk.head() {
        return Err(beyond(after.get(), desk.head().get()));
    }
    let batch = match &query.batch {
        Some(name) => Some(desk.find_batch(name)?),
        None => None,
    };
    let kinds = match &query.kinds {
        Some(names) => Kinds::named(names.split(',').map(str::trim)),
        None => Ok(Kinds::default()),
    };
    let kinds = kinds.map_err(|error| ApiError::new(Code::BadRequest, format!("kinds: {error}")))?;
    let filter = Filter { batch, kinds, ..Filter::default() };
    Ok(answer(desk.hub().all(after, filter, deltas(query.live))))
}

/// Where to go on: as the header says, else as the parameter does, else from the beginning.
fn after(headers: &HeaderMap, parameter: Option<u64>) -> Result<u64, ApiError> {
    match header(headers, LAST_EVENT_ID)? {
        Some(text) => place(LAST_EVENT_ID, text),
        None => Ok(parameter.unwrap_or_default()),
    }
}

fn place(name: &str, text: &str) -> Result<u64, ApiError> {
    let id = text.parse().ok().and_then(|id: i64| u64::try_from(id).ok());
    id.ok_or_else(|| ApiError::new(Code::BadRequest, format!("{name}: want the id of an event, a number")))
}

/// A cursor that no event of this log had: it is another log's, and following it would miss events.
fn beyond(after: u64, head: u64) -> ApiError {
    let what = format!(
        "there is no event {after} yet, the last is {head}; is this another state folder? Start at 0"
    );
    ApiError::new(Code::Ahead, what)
}

const fn deltas(live: bool) -> Deltas {
    if live { Deltas::With } else { Deltas::Without }
}

fn answer(events: EventStream) -> Response {
    let headers = [("content-type", "text/event-stream"), ("cache-control", "no-store")];
    (headers, Body::from_stream(events.into_stream().map(Ok::<_, Infallible>))).into_response()
}
