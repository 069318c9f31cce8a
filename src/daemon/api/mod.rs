//! The routes: what is asked over HTTP, put to the desk. Described by OpenAPI where each route is defined.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, Request},
    http::{HeaderValue, Method, StatusCode, header::LOCATION},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouterExt as _},
    routes,
};

use self::describe::Described;
use super::{
    desk::Desk,
    wire::{API_VERSION, ApiError, Code, VERSION_HEADER},
};

mod approvals;
mod batches;
mod caller;
mod control;
mod describe;
mod error;
mod events;
mod extract;
mod health;
mod runs;
mod through;

/// Bytes that the body of a request may have: more is no change that anybody means to make.
const MAX_BODY: usize = 1 << 20;

/// Bytes that a task may have, its script and its notes included. Those of a batch go to disk as they come, and may be of
/// any number.
const MAX_TASK: usize = 64 << 20;

/// Every route, and the description of them all.
pub fn router(desk: Arc<Desk>) -> Router {
    let (router, description) = OpenApiRouter::with_openapi(describe::common())
        .routes(routes!(runs::submit, runs::list).layer(DefaultBodyLimit::max(MAX_TASK)))
        .routes(routes!(runs::show, runs::retune))
        .routes(routes!(runs::patch))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::pause))
        .routes(routes!(runs::resume))
        .routes(routes!(runs::steer))
        .routes(routes!(runs::follow_up))
        .routes(routes!(runs::go_on))
        .routes(routes!(runs::requeue))
        .routes(routes!(runs::cancel_call))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::show, approvals::answer))
        .routes(routes!(events::of_run))
        .routes(routes!(events::of_all))
        .routes(routes!(batches::submit, batches::list))
        .routes(routes!(batches::show, batches::retune))
        .routes(routes!(batches::results))
        .routes(routes!(batches::cancel))
        .routes(routes!(batches::pause))
        .routes(routes!(batches::resume))
        .routes(routes!(control::models))
        .routes(routes!(control::pause_model))
        .routes(routes!(control::resume_model))
        .routes(routes!(control::pause))
        .routes(routes!(control::resume))
        .routes(routes!(control::config, control::change_config))
        .routes(routes!(control::reload))
        .routes(routes!(control::prune))
        .routes(routes!(control::stop))
        .routes(routes!(control::status))
        .routes(routes!(control::stats))
        .routes(routes!(control::audit))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
        .routes(routes!(describe::described))
        .split_for_parts();
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(Extension(Described::of(description)))
        .layer(middleware::from_fn_with_state(desk.clone(), through::see_through))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn(version))
        .with_state(desk)
}

async fn unknown_route(request: Request) -> ApiError {
    ApiError::new(
        Code::UnknownRoute,
        format!("there is no {}; /openapi.json lists what there is", request.uri().path()),
    )
}

async fn method_not_allowed(method: Method, request: Request) -> ApiError {
    ApiError::new(
        Code::MethodNotAllowed,
        format!("{} does not take {method}; the header Allow has what it takes", request.uri().path()),
    )
}

/// Says the version that is spoken here with every answer, and refuses another.
async fn version(request: Request, next: Next) -> Response {
    let theirs = request.headers().get(VERSION_HEADER);
    let fits = theirs.is_none_or(|theirs| theirs.as_bytes() == API_VERSION.to_string().as_bytes());
    let mut response = if fits {
        next.run(request).await
    } else {
        let what = format!(
            "this daemon speaks version {API_VERSION} of the API; use the herder that it was started with"
        );
        ApiError::new(Code::ApiVersion, what).into_response()
    };
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from(API_VERSION));
    response
}

/// An answer to something that was submitted: created, or there already.
fn created<T: serde::Serialize>(is_new: bool, place: String, answer: T) -> Response {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    (status, [(LOCATION, place)], axum::Json(answer)).into_response()
}
