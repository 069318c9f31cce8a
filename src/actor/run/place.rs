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
    /// Waits for a place, and until the request may go out.
    pub(super) async fn place(&self, permit: Option<Permit>) -> Result<Permit, ModelError> {
        let place = async {
            let mut permit = match permit {
                Some(permit) => permit,
                None => self.model.governor.admit().await,
            };
            permit.send(estimated_tokens(self.bytes)).await;
            permit
        };
        let mut changes = self.model.governor.account().changes();
        let shut = async {
            match changes.wait_for(Option::is_some).await.map(|latched| latched.clone()) {
                Ok(Some(latched)) if self.has_fallback => latched,
                Ok(_) | Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            permit = place => Ok(permit),
            Latched { reason, said, .. } = shut => {
                let class = match reason {
                    LatchReason::RateLimit => FaultClass::RateLimit,
                    LatchReason::Quota => FaultClass::Quota,
                    LatchReason::Auth => FaultClass::Auth,
                };
                let wait = (class == FaultClass::RateLimit).then_some(PATIENCE + Duration::from_secs(1));
                Err(ModelError { retry_after: wait, ..error(class, &format!("not asked: {said}")) })
            }
        }
    }

    /// What is to become of the run after a request that failed, and of everybody who asks the same account.
    pub(super) fn failed(&self, error: ModelError, usage: Option<Usage>) -> Input {
        let parks = self.shut_account(&error);
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
            parks,
            fallback: None,
            jitter: jitter(),
        }
    }

    /// Shuts the account if asking on would only be refused; says what the run waits for without a slot, if it does.
    fn shut_account(&self, error: &ModelError) -> Option<ParkReason> {
        let account = self.model.governor.account();
        let until = error.retry_after.map(|wait| Instant::now() + wait);
        let shut = |reason| account.shut(Latched { reason, until, said: error.message.as_str().into() });
        let outlasts = self.services.settings.outlast_accounts;
        match error.class {
            FaultClass::Quota => {
                shut(LatchReason::Quota);
                (account.latch().is_some() && outlasts).then_some(ParkReason::Quota)
            }
            FaultClass::Auth if !error.key_refused => None,
            FaultClass::Auth => {
                let is_shut = account.rejected(&error.message);
                (is_shut && outlasts).then_some(ParkReason::Auth)
            }
            FaultClass::RateLimit
            | FaultClass::Overloaded
            | FaultClass::Transient
            | FaultClass::Timeout
            | FaultClass::Stall => {
                error.retry_after.filter(|wait| *wait > PATIENCE)?;
                if error.class == FaultClass::RateLimit {
                    shut(LatchReason::RateLimit);
                }
                Some(ParkReason::RateLimit)
            }
            FaultClass::Invalid | FaultClass::ContextOverflow | FaultClass::Cancelled => None,
        }
    }
}
