//! Pausing many runs at once: all, those of a batch, those of a model. A pause outlives the daemon.

use tokio::sync::MutexGuard;

use super::{By, Desk, Phase};
use crate::{
    daemon::wire::{ApiError, Changed, Gate, GateKind, PauseMode},
    domain::gate::{PauseMode as Mode, Scope},
    store::StoreError,
};

/// Settings whose name begins so are gates: the rest is the scope, as JSON; the value is the mode.
const SETTING: &str = "gate:";

impl Desk {
    /// Shuts the gates that an earlier daemon left shut. Comes before anything is admitted.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn restore_gates(&self) -> Result<(), StoreError> {
        for (name, value) in self.store().settings().await? {
            let Some(scope) = name.strip_prefix(SETTING) else { continue };
            match (serde_json::from_str(scope), serde_json::from_str(&value)) {
                (Ok(scope), Ok(mode)) => {
                    let _ = self.herder.supervisor.hold(scope, mode).await;
                }
                // Of a later version; a pause that is not understood must not be taken for none.
                (Err(_), _) | (_, Err(_)) => {
                    tracing::error!(name, value, "a pause on record is not understood: everything is paused");
                    let _ = self.herder.supervisor.hold(Scope::All, Mode::Hold).await;
                }
            }
        }
        Ok(())
    }

    /// Pauses what the scope covers.
    ///
    /// # Errors
    /// The log does not take it; then nothing was changed for good.
    pub async fn shut(&self, scope: Scope, mode: PauseMode, by: &By) -> Result<Changed, ApiError> {
        let mode = match mode {
            PauseMode::Soft => Mode::Soft,
            PauseMode::Hold => Mode::Hold,
        };
        let _alone = self.gate_changes().await?;
        self.keep(&scope, Some(mode)).await?;
        let changed = self.herder.supervisor.hold(scope.clone(), mode).await;
        self.audit(by, "pause", named(&scope), changed, None);
        Ok(Changed { changed, seq: None })
    }

    /// Lets what the scope covers go on; of a model it opens the account as well. Runs that are paused by themselves, or by
    /// another scope, stay so.
    ///
    /// # Errors
    /// As [`Self::shut`].
    pub async fn release(&self, scope: Scope, by: &By) -> Result<Changed, ApiError> {
        let _alone = self.gate_changes().await?;
        self.keep(&scope, None).await?;
        let opened = match &scope {
            Scope::Model(model) => self.open_account(model),
            Scope::All | Scope::Batch(_) => None,
        };
        let changed = self.herder.supervisor.release(scope.clone()).await || opened.is_some();
        let detail = opened.map(|account| format!("account {account} opened"));
        self.audit(by, "resume", named(&scope), changed, detail);
        Ok(Changed { changed, seq: None })
    }

    /// One change at a time, or two could leave the record and what is in force at odds; and none before those of the
    /// earlier daemon are in force again.
    async fn gate_changes(&self) -> Result<MutexGuard<'_, ()>, ApiError> {
        if self.phase() == Phase::Starting {
            self.open()?;
        }
        Ok(self.gate_changes.lock().await)
    }

    async fn keep(&self, scope: &Scope, mode: Option<Mode>) -> Result<(), ApiError> {
        // Both have a JSON form; the fallback only keeps this total.
        let name = format!("{SETTING}{}", serde_json::to_string(scope).unwrap_or_default());
        let value = mode.and_then(|mode| serde_json::to_string(&mode).ok());
        let ticket = self.store().save_setting(&name, value)?;
        Ok(self.store().durable(ticket).await?)
    }

    /// What is paused.
    pub(super) async fn gates(&self) -> Vec<Gate> {
        let gates = self.herder.supervisor.gates().await;
        let gate = |(scope, mode): (&Scope, Mode)| {
            let (kind, name) = match scope {
                Scope::All => (GateKind::All, None),
                Scope::Batch(batch) => (GateKind::Batch, Some(batch.to_string())),
                Scope::Model(model) => (GateKind::Model, Some(model.to_string())),
            };
            let mode = match mode {
                Mode::Soft => PauseMode::Soft,
                Mode::Hold => PauseMode::Hold,
            };
            Gate { kind, name, mode }
        };
        gates.iter().map(gate).collect()
    }
}

/// What a scope covers, as it is written.
pub(super) fn named(scope: &Scope) -> String {
    match scope {
        Scope::All => "all".to_owned(),
        Scope::Batch(batch) => batch.to_string(),
        Scope::Model(model) => format!("model {model}"),
    }
}
