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
        self.at_least(Role::Operator, "you may look, but not change anything")
    }

    /// Who asks, if they may answer what runs ask leave for.
    pub(super) fn approver(self) -> Result<By, ApiError> {
        self.at_least(
            Role::Approver,
            "you may not answer for calls; that wants the role approver, by [daemon.roles] or daemon.tcp_role",
        )
    }

    fn at_least(self, role: Role, else_told: &str) -> Result<By, ApiError> {
        let Some(who) = self.who.filter(|who| who.role >= role) else {
            return Err(ApiError::new(Code::Forbidden, else_told));
        };
        let uid = match who.via {
            Via::Unix { uid, .. } => Some(uid),
            Via::Tcp => None,
        };
        Ok(By { uid, user: uid.and_then(users::name), client: self.client })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_changes_things_and_an_approver_answers_too() {
        let caller = |role| Caller { who: Some(server::Caller { via: Via::Tcp, role }), client: None };
        let may = |role| (caller(role).operator().is_ok(), caller(role).approver().is_ok());
        assert_eq!(
            [Role::Viewer, Role::Operator, Role::Approver].map(may),
            [(false, false), (true, false), (true, true)]
        );
        let told = caller(Role::Operator).approver().expect_err("refused");
        assert_eq!(told.code, Code::Forbidden);
        assert!(told.message.contains("role approver"), "{}", told.message);
    }
}
