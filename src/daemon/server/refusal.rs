//! What the server answers by itself, before or instead of a route: an error's code, and a sentence.
//!
//! The connection ends with such an answer. Knows nothing of the errors that routes give.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// Why no route answers, or no route's answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A user who has no role here.
    Stranger,
    /// A web page that took another way to this machine: its name resolves to ours.
    ForeignHost,
    /// A request that a page of another origin made.
    ForeignOrigin,
    Unauthorized,
    BodyStalled,
    TooManyConnections,
    Panicked,
}

impl Refusal {
    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Stranger => (
                StatusCode::FORBIDDEN,
                "forbidden",
                "this daemon belongs to another user, who has given you no role",
            ),
            Self::ForeignHost => {
                (StatusCode::FORBIDDEN, "forbidden", "the Host header names no loopback address")
            }
            Self::ForeignOrigin => {
                (StatusCode::FORBIDDEN, "forbidden", "the Origin header names another site than this one")
            }
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "this port wants the daemon's token: Authorization: Bearer TOKEN",
            ),
            Self::BodyStalled => {
                (StatusCode::REQUEST_TIMEOUT, "body_timeout", "the request's body stopped coming")
            }
            Self::TooManyConnections => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too_many_connections",
                "the daemon has as many connections as it takes; try again once one has ended",
            ),
            Self::Panicked => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "the daemon failed at this request; its log says where",
            ),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, code, message) = self.parts();
        let mut response = (status, Json(json!({ "code": code, "message": message }))).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        match self {
            Self::Unauthorized => {
                let scheme = HeaderValue::from_static("Bearer realm=\"herder\"");
                headers.insert(header::WWW_AUTHENTICATE, scheme);
            }
            Self::TooManyConnections => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Stranger | Self::ForeignHost | Self::ForeignOrigin | Self::BodyStalled | Self::Panicked => {
            }
        }
        response
    }
}
