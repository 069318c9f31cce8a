//! Who asks, and whether they may.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use hyper::http::request::Parts;

use crate::daemon::{
    desk::By,
    server::{self, Role, Via},
    users,
    wire::{ApiError, CLIENT_HEADER, Code},
};

/// Characters of a client's own name that are put on record.
const NAME_CHARS: usize = 100;

/// Who asks.
pub(super) struct Caller {
    who: Option<server::Caller>,
    client: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let client = parts.headers.get(CLIENT_HEADER).and_then(|name| name.to_str().ok());
        let client = client.map(|name| name.chars().take(NAME_CHARS).collect());
        Ok(Self { who: parts.extensions.get().copied(), client })
    }
}

impl Caller {
    /// Who asks, if they may change things.
    pub(super) fn operator(self) -> Result<By, ApiError> {
        let Some(who) = self.who.filter(|who| who.role >= Role::Operator) else {
            return Err(ApiError::new(Code::Forbidden, "you may look, but not change anything"));
        };
        let uid = match who.via {
            Via::Unix { uid, .. } => Some(uid),
            Via::Tcp => None,
        };
        Ok(By { uid, user: uid.and_then(users::name), client: self.client })
    }
}
