//! A request and its account: waiting for a place to ask from, and what a failure means to everybody who asks there.

use std::time::Duration;

use tokio::time::Instant;

use super::ask::{Asking, error, jitter};
use crate::{
    domain::{
        event::ParkReason,
        outcome::FaultClass,
        retry::PATIENCE,
        run::Input,
        usage::{Usage, estimated_tokens},
    },
    model::{
        ModelError,
        governor::{LatchReason, Latched, Permit},
    },
};

impl Asking {
    /// Waits for a place, unless there is one from the turn's last request.
    pub(super) async fn place(&self, permit: Option<Permit>) -> Result<Permit, Input> {
        match permit {
            Some(permit) => Ok(permit),
            None => self.unless_shut(self.model.governor.admit()).await,
        }
    }

    /// Waits until the request may go out.
    pub(super) async fn clear(&self, permit: &mut Permit) -> Result<(), Input> {
        self.unless_shut(permit.send(estimated_tokens(self.bytes))).await
    }

    /// Waits; not for an account to open, if another model can go on.
    async fn unless_shut<T>(&self, wait: impl Future<Output = T>) -> Result<T, Input> {
        let mut changes = self.model.governor.account().changes();
        let shut = async {
            match changes.wait_for(Option::is_some).await.map(|latched| latched.clone()) {
                Ok(Some(latched)) if self.has_fallback => latched,
                Ok(_) | Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            done = wait => Ok(done),
            Latched { reason, said, .. } = shut => {
                let class = match reason {
                    LatchReason::RateLimit => FaultClass::RateLimit,
                    LatchReason::Quota => FaultClass::Quota,
                    LatchReason::Auth => FaultClass::Auth,
                };
                // Longer than anybody waits for in its slot, so that the other model goes on.
                let retry_after = Some(PATIENCE + Duration::from_secs(1));
                // It is only what everybody knows already, and shuts nothing.
                Err(self.gave(ModelError { retry_after, ..error(class, &said) }, None, None))
            }
        }
    }

    /// What is to become of the run after a request that failed, and of everybody who asks the same account.
    pub(super) fn failed(&self, error: ModelError, usage: Option<Usage>) -> Input {
        let parks = self.shut_account(&error);
        self.gave(error, usage, parks)
    }

    fn gave(&self, error: ModelError, usage: Option<Usage>, parks: Option<ParkReason>) -> Input {
        let ModelError { class, message, retry_after, refused: _, key_refused: _ } = error;
        Input::ModelFailed {
            turn: self.turn,
            attempt: self.attempt,
            class,
            error: message,
            retry_after,
            usage,
            waited: self.departure.waited(self.services.clock.now()),
            shown: self.bytes,
            allowed: self.allowed,
            fits: self.fits,
            parks,
            fallback: None,
            jitter: jitter(),
        }
    }

    /// Shuts the account if asking on would only be refused; says what the run waits for without a slot, if it does.
    fn shut_account(&self, error: &ModelError) -> Option<ParkReason> {
        let account = self.model.governor.account();
        // A short wait is for the next request; of when there is money again it says nothing. A time that no clock reaches is none.
        let long = error.retry_after.filter(|wait| *wait > PATIENCE);
        let until = long.and_then(|wait| Instant::now().checked_add(wait));
        let shut = |reason| account.shut(Latched { reason, until, said: error.message.as_str().into() });
        let outlasts = self.services.settings.outlast_accounts;
        match error.class {
            FaultClass::Quota => {
                shut(LatchReason::Quota);
                (account.latch().is_some() && outlasts).then_some(ParkReason::Quota)
            }
            FaultClass::Auth if !error.key_refused => None,
            FaultClass::Auth => {
                // A first refusal may be a key that is being changed: the run asks once more, and the second shuts.
                account.rejected(&error.message);
                (outlasts && !account.is_lone()).then_some(ParkReason::Auth)
            }
            FaultClass::RateLimit
            | FaultClass::Overloaded
            | FaultClass::Transient
            | FaultClass::Timeout
            | FaultClass::Stall => {
                long?;
                if error.class == FaultClass::RateLimit {
                    shut(LatchReason::RateLimit);
                }
                Some(ParkReason::RateLimit)
            }
            FaultClass::Invalid | FaultClass::ContextOverflow | FaultClass::Cancelled => None,
        }
    }
}
