//! A place among those that may ask, and what becomes of the request that its holder sends.

use std::{sync::Arc, time::Duration};

use super::{Governor, RateLimits, state::Sent};
use crate::domain::outcome::FaultClass;

/// A place, kept through the back-off of a turn. Dropped, it is free for the next; a request that nothing was said of
/// counts as used up.
#[derive(Debug)]
#[must_use = "the place is free again when this is dropped"]
pub struct Permit {
    governor: Arc<Governor>,
    /// Whether it is one of a limited number.
    counted: bool,
    sent: Option<Sent>,
}

impl Permit {
    pub(super) fn new(governor: &Arc<Governor>, counted: bool) -> Self {
        Self { governor: Arc::clone(governor), counted, sent: None }
    }

    /// Waits until a request of about so many tokens, of input and output, may go out, and counts it. Nothing goes out
    /// while the account is shut. Dropping the future leaves the queue at once; then nothing is counted.
    pub async fn send(&mut self, tokens: u64) {
        if let Some(forgotten) = self.sent.take() {
            self.governor.change(|state, _| state.back(forgotten));
        }
        if self.counted {
            self.sent = Some(self.governor.send(tokens).await);
        } else {
            self.governor.until_open().await;
        }
    }

    /// The first token of the answer came so long after the request.
    pub fn first_token(&mut self, after: Duration) {
        if let Some(sent) = self.sent {
            self.governor.change(|state, now| state.first_token(sent, after, now));
        }
    }

    /// What the answer's headers say of the server's limits.
    pub fn told(&mut self, said: &RateLimits) {
        if self.counted {
            self.governor.change(|state, now| state.told(said, self.sent, now));
        }
    }

    /// The request was answered, and really used so many tokens.
    pub fn answered(&mut self, tokens: u64) {
        self.governor.account().accepted();
        if let Some(sent) = self.sent.take() {
            self.governor.change(|state, now| state.answered(sent, tokens, now));
        }
    }

    /// The request failed. The place stays, for another try.
    pub fn failed(&mut self, class: FaultClass, retry_after: Option<Duration>) {
        if let Some(sent) = self.sent.take() {
            self.governor.change(|state, now| state.failed(sent, class, retry_after, now));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.counted {
            let sent = self.sent.take();
            self.governor.change(|state, _| {
                if let Some(sent) = sent {
                    state.back(sent);
                }
                state.leave();
            });
        }
    }
}

/// A run that was started and has not asked yet. Given back when dropped.
#[derive(Debug)]
#[must_use = "the pledge is given back when this is dropped"]
pub struct Pledge {
    /// None: of a governor that counts nobody.
    governor: Option<Arc<Governor>>,
}

impl Pledge {
    pub(super) fn new(governor: Option<&Arc<Governor>>) -> Self {
        if let Some(governor) = governor {
            governor.change(|state, _| state.pledged += 1);
        }
        Self { governor: governor.map(Arc::clone) }
    }
}

impl Drop for Pledge {
    fn drop(&mut self) {
        if let Some(governor) = &self.governor {
            governor.change(|state, _| state.pledged = state.pledged.saturating_sub(1));
        }
    }
}
