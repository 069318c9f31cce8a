//! A refusal as an answer: our error JSON with the status of its code, whoever found the fault.

use std::collections::BTreeMap;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use hyper::StatusCode;
use utoipa::{
    IntoResponses, PartialSchema as _, ToSchema,
    openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder},
};

use crate::daemon::wire::{ApiError, Code};

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self)).into_response()
    }
}

/// What every route may answer instead of what was asked: for the description.
pub(super) struct Refusals;

impl IntoResponses for Refusals {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut codes: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
        for code in Code::ALL {
            codes.entry(code.status()).or_default().push(code.as_str());
        }
        let refusal = |(status, codes): (u16, Vec<&str>)| {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ApiError::name()))).build();
            let response = ResponseBuilder::new()
                .description(format!("Refused: {}", codes.join(", ")))
                .content("application/json", content)
                .build();
            (status.to_string(), RefOr::T(response))
        };
        codes.into_iter().map(refusal).collect()
    }
}

/// Whether the description has a schema of that name: `Refusals` refers to it.
#[expect(dead_code, reason = "ties the reference above to the type's schema")]
fn described() -> RefOr<utoipa::openapi::Schema> {
    ApiError::schema()
}
