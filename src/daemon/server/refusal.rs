//! What the server answers by itself, before or instead of a route: an error's code, and a sentence.
//!
//! The connection ends with such an answer. Knows nothing of the errors that routes give.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::daemon::wire::{API_VERSION, ApiError, Code, VERSION_HEADER};

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
    fn error(self) -> ApiError {
        let (code, message) = match self {
            Self::Stranger => {
                (Code::Forbidden, "this daemon belongs to another user, who has given you no role")
            }
            Self::ForeignHost => (Code::Forbidden, "the Host header names no loopback address"),
            Self::ForeignOrigin => (Code::Forbidden, "the Origin header names another site than this one"),
            Self::Unauthorized => {
                (Code::Unauthorized, "this port wants the daemon's token: Authorization: Bearer TOKEN")
            }
            Self::BodyStalled => (Code::Timeout, "the request's body stopped coming"),
            Self::TooManyConnections => (
                Code::TooManyConnections,
                "the daemon has as many connections as it takes; try again once one has ended",
            ),
            Self::Panicked => (Code::Internal, "the daemon failed at this request; its log says where"),
        };
        ApiError::new(code, message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = self.error();
        let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(error)).into_response();
        let headers = response.headers_mut();
        headers.insert(VERSION_HEADER, HeaderValue::from(API_VERSION));
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
