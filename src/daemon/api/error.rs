//! A refusal as an answer: our error JSON with the status of its code, whoever found the fault.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use hyper::StatusCode;

use crate::daemon::wire::ApiError;

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self)).into_response()
    }
}
