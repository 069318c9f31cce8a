//! The daemon in one look, and whether it lives.

use std::time::Duration;

use super::{Desk, Phase, list::counted, view::tokens};
use crate::{
    clock::rfc3339,
    daemon::wire::{API_VERSION, Load, Rates, Status},
};

/// How long the root of the actors may take to answer before it is taken for stuck.
const HEARTBEAT: Duration = Duration::from_secs(5);

impl Desk {
    /// The daemon in one look. It waits for no disk, so it is told soon however much is written.
    pub async fn status(&self) -> Status {
        self.hub.caught_up().await;
        let runs = self.hub.board().counts();
        let load = self.herder.supervisor.load().await;
        let totals = self.hub.board().totals(|_| true, self.now());
        let process = crate::daemon::process::facts(&self.place.state);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api: API_VERSION,
            pid: std::process::id(),
            state: self.place.state.display().to_string(),
            socket: self.place.socket.display().to_string(),
            listen: self.place.listen.map(|address| address.to_string()),
            started_at: rfc3339(self.place.started_at),
            phase: self.phase().as_str().to_owned(),
            max_live_runs: count(self.config().supervisor.max_live_runs.most().get()),
            load: Load {
                live: count(load.live),
                queued: count(load.queued),
                held: count(load.held),
                thinking: count(totals.stand("thinking")),
                acting: count(totals.stand("acting")),
                calls_running: count(totals.calls_running),
                calls_waiting: count(totals.calls_waiting),
                approvals: count(totals.calls_asked_about),
            },
            rates: Rates {
                turns_per_s: totals.rates.turns,
                tokens_per_s: totals.rates.tokens,
                runs_per_min: totals.rates.ends * 60.0,
                usd_per_min: totals.rates.usd_per_minute,
            },
            runs: counted(runs),
            open_usage: tokens(totals.usage),
            open_cost_usd: totals.usage.cost.map(|cost| cost.usd()),
            open_batches: count(self.batches.open()),
            paused: self.gates().await,
            shut: self.shut_accounts(),
            budgets: self.budgets().await,
            followers: count(self.hub.followers()),
            rss_bytes: process.rss_bytes,
            log_bytes: process.log_bytes,
            trouble: self.log_trouble(),
        }
    }

    /// Why nothing becomes durable, if that is so.
    pub fn log_trouble(&self) -> Option<String> {
        self.herder.supervisor.services().store.health().borrow().trouble()
    }

    /// Whether the root of the actors answers.
    pub async fn alive(&self) -> bool {
        // Once it stops, the tree is down and nobody need answer.
        self.phase() == Phase::Stopping
            || tokio::time::timeout(HEARTBEAT, self.herder.supervisor.load()).await.is_ok()
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
