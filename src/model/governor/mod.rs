//! How much is asked of one account at once and in a minute.

use std::{
    num::{NonZeroU32, NonZeroU64},
    sync::Arc,
    time::Duration,
};

use crate::domain::outcome::FaultClass;

/// One account at a provider.
#[derive(Debug)]
pub struct Account {
    name: Arc<str>,
}

impl Account {
    /// An open account.
    pub fn new(name: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self { name: name.into() })
    }

    /// What it is called.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// How much may be asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    pub requests_per_minute: Option<NonZeroU32>,
    pub tokens_per_minute: Option<NonZeroU64>,
    pub concurrency: Concurrency,
}

/// How many requests may be out at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    #[default]
    Unlimited,
}

impl Concurrency {
    /// As many as the server takes, but never more than `max`.
    pub fn up_to(_: NonZeroU32) -> Self {
        Self::Unlimited
    }
}

/// Gives out places.
#[derive(Debug)]
pub struct Governor {
    account: Arc<Account>,
}

impl Governor {
    /// A governor of an account.
    pub fn new(account: Arc<Account>, _: Rates) -> Arc<Self> {
        Arc::new(Self { account })
    }

    /// The account.
    pub const fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Waits for a place.
    pub async fn admit(self: &Arc<Self>) -> Permit {
        std::future::ready(Permit { governor: self.clone() }).await
    }
}

/// A place.
#[derive(Debug)]
pub struct Permit {
    governor: Arc<Governor>,
}

impl Permit {
    /// Who gave it.
    pub const fn governor(&self) -> &Arc<Governor> {
        &self.governor
    }

    /// Waits until a request of about so many tokens may go out.
    pub async fn send(&mut self, _: u64) {
        std::future::ready(()).await;
    }

    /// The first word has come.
    pub const fn first_token(&mut self, _: Duration) {}

    /// The answer is whole.
    pub const fn answered(&mut self, _: u64) {}

    /// There was none.
    pub const fn failed(&mut self, _: FaultClass, _: Option<Duration>) {}

    /// What the head of the answer says.
    pub const fn told(&mut self, _: &RateLimits) {}
}

/// What a server's headers say of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    pub requests: Option<Window>,
    pub tokens: Option<Window>,
}

/// See [`RateLimits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub limit: Option<u64>,
    pub remaining: Option<u64>,
    /// From now.
    pub reset: Option<Duration>,
}
