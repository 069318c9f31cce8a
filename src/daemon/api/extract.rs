//! What a request says, taken apart: with our own error JSON where it is not what the route takes.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Request, rejection::BytesRejection},
    response::IntoResponse as _,
};
use hyper::{StatusCode, http::request::Parts};
use serde::de::DeserializeOwned;

use crate::daemon::wire::{ApiError, Code};

/// A body of JSON, whatever media type it claims to have; `curl -d` claims a form. An empty one is an empty object.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(unread)?;
        let text = bytes.trim_ascii();
        let text = if text.is_empty() { &b"{}"[..] } else { text };
        // A list would be taken for the fields of an object, in their order.
        if text.first() == Some(&b'[') {
            return Err(ApiError::new(Code::BadRequest, "the body: is a list; want a JSON object"));
        }
        let mut json = serde_json::Deserializer::from_slice(text);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| at("the body", &error))?;
        json.end().map_err(|error| ApiError::new(Code::BadRequest, format!("the body: {error}")))?;
        Ok(Self(value))
    }
}

/// A body as it came, whole.
pub(super) struct Text(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Text {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Bytes::from_request(request, state).await.map(Self).map_err(unread)
    }
}

fn unread(rejection: BytesRejection) -> ApiError {
    let text = rejection.body_text();
    match rejection.into_response().status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::new(Code::TooLarge, "the body is larger than this route takes")
        }
        _ => ApiError::new(Code::BadRequest, format!("the body could not be read: {text}")),
    }
}

/// What is wrong where.
fn at<E: std::fmt::Display>(what: &str, error: &serde_path_to_error::Error<E>) -> ApiError {
    let (path, error) = (error.path().to_string(), error.inner());
    let place = if path == "." { what.to_owned() } else { path };
    ApiError::new(Code::BadRequest, format!("{place}: {error}"))
}

/// The parameters of a request. A key may come more than once where a list is wanted.
pub(super) struct Query<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        let parameters = serde_html_form::Deserializer::from_bytes(query.as_bytes());
        let value =
            serde_path_to_error::deserialize(parameters).map_err(|error| at("the parameters", &error))?;
        Ok(Self(value))
    }
}

/// Parts of the path that are names. One that is not UTF-8 names nothing.
pub(super) struct Name<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Name<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(_) => Err(ApiError::new(Code::UnknownRoute, "the path is not UTF-8")),
        }
    }
}

/// A header as text; nothing if it is absent.
pub(super) fn header<'a>(headers: &'a hyper::HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value
        .to_str()
        .map_err(|_| ApiError::new(Code::BadRequest, format!("header {name}: want printable ASCII")))?;
    Ok(Some(text))
}
