//! The models that runs can ask, the accounts they are asked by, and what is spent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::time::Instant;

use super::Desk;
use crate::{
    actor::supervisor::Notice,
    clock::rfc3339,
    config::{Occasion, Price},
    daemon::wire::{
        ApiError, BudgetKind, BudgetView, Code, GateKind, Latch, LatchReason, ModelList, ModelLoad, ModelView,
    },
    domain::{
        budget::{Node, Standing},
        gate::Scope,
        text::bare_url,
        time::Timestamp,
        usage::NanoUsd,
    },
    model::governor::{self, Account, Latched, View},
};

impl Desk {
    /// Every model that is configured, or that a run was submitted for.
    pub async fn models(&self) -> ModelList {
        let config = self.config();
        let known = self.herder.supervisor.services().models.names();
        let names: BTreeSet<&str> =
            config.models.keys().map(String::as_str).chain(known.iter().map(|name| &**name)).collect();
        let gates = self.gates().await;
        let mut open: BTreeMap<String, u64> = BTreeMap::new();
        for glance in self.hub.board().page(|_| true, |_| (), 0, usize::MAX).runs {
            *open.entry(glance.model.to_string()).or_default() += 1;
        }
        let view = |name: &str| {
            let gate =
                gates.iter().find(|gate| gate.kind == GateKind::Model && gate.name.as_deref() == Some(name));
            let governor =
                self.herder.supervisor.services().models.get(name).map(|live| live.governor.clone());
            let account = self.account(name);
            ModelView {
                name: name.to_owned(),
                paused: gate.map(|gate| gate.mode),
                latched: account.and_then(|account| latch(&account, self.now())),
                load: governor.map(|governor| load(&governor.view())),
                open_runs: open.get(name).copied().unwrap_or_default(),
                ..self.described(name)
            }
        };
        ModelList { models: names.into_iter().map(view).collect() }
    }

    /// What the configuration says of a model.
    fn described(&self, name: &str) -> ModelView {
        let Ok(model) = self.config().describe(name) else {
            return ModelView { provider: "unknown".to_owned(), ..ModelView::default() };
        };
        let [input, cached, cache_write, output] = match model.price {
            Price::Unknown => [None; 4],
            Price::Free => [Some(0.0); 4],
            Price::PerMtok { input, output, cached, cache_write } => {
                [Some(input), Some(cached), Some(cache_write), Some(output)]
            }
        };
        ModelView {
            provider: model.provider.as_str().to_owned(),
            context_window: model.context_window.map(u64::from),
            model: model.model,
            server: model.base_url.as_deref().map(|url| bare_url(url).into_owned()),
            key: Some((&model.key).into()),
            max_output_tokens: model.max_output_tokens,
            account: Some(model.account),
            input_usd_per_mtok: input,
            cached_usd_per_mtok: cached,
            cache_write_usd_per_mtok: cache_write,
            output_usd_per_mtok: output,
            requests_per_minute: model.requests_per_minute.map(Into::into),
            tokens_per_minute: model.tokens_per_minute.map(Into::into),
            max_concurrency: model.max_concurrency.map(Into::into),
            fallbacks: model.fallbacks,
            ..ModelView::default()
        }
    }

    /// The account that a model is asked by: its own, or if no run has named it yet one that others have of that name.
    fn account(&self, model: &str) -> Option<Arc<Account>> {
        let models = &self.herder.supervisor.services().models;
        let of = |name: &str| Some(models.get(name)?.governor.account().clone());
        of(model).or_else(|| {
            let wanted = self.config().describe(model).ok()?.account;
            models.names().iter().filter_map(|name| of(name)).find(|account| **account.name() == *wanted)
        })
    }

    /// Opens the account that a model is asked by, and says which if it was shut.
    pub(super) fn open_account(&self, model: &str) -> Option<Arc<str>> {
        let account = self.account(model)?;
        account.open().then(|| account.name().clone())
    }

    /// The accounts that are shut, each once.
    pub(super) fn shut_accounts(&self) -> Vec<Latch> {
        let (models, now) = (&self.herder.supervisor.services().models, self.now());
        let accounts =
            models.names().into_iter().filter_map(|name| Some(models.get(&name)?.governor.account().clone()));
        let shut: BTreeMap<String, Latch> = accounts
            .filter_map(|account| Some((account.name().to_string(), latch(&account, now)?)))
            .collect();
        shut.into_values().collect()
    }

    /// What was spent of the budgets that are no batch's, where there is anything to say.
    pub(super) async fn budgets(&self) -> Vec<BudgetView> {
        let now = self.now();
        let standings = self.herder.supervisor.accounts().await;
        let runs = |node: &Node| node.until().is_none_or(|until| now < until);
        standings.into_iter().filter(|(node, _)| runs(node)).filter_map(budget).collect()
    }

    /// A notice as it is told.
    pub fn news(&self, notice: Notice) -> (Occasion, serde_json::Value) {
        match notice {
            Notice::AccountShut(account, latched) => {
                let latch = shown(&account, &latched, self.now());
                (Occasion::LatchClosed, serde_json::json!(latch))
            }
            Notice::NearCap(node, Standing { spent, cap, .. }) => {
                let name = match &node {
                    Node::Process => None,
                    Node::Batch(batch) => Some(batch.to_string()),
                    Node::User { user, .. } => Some(user.to_string()),
                };
                let news = serde_json::json!({
                    "kind": node.kind(),
                    "name": name,
                    "until": node.until().map(rfc3339),
                    "spent_usd": spent.usd(),
                    "cap_usd": cap.map(NanoUsd::usd),
                });
                (Occasion::Cap80, news)
            }
        }
    }

    /// The runs that ask a model.
    ///
    /// # Errors
    /// There can be no model of that name.
    pub fn model_scope(&self, name: &str) -> Result<Scope, ApiError> {
        match self.config().check_model(name) {
            Ok(()) => Ok(Scope::Model(name.into())),
            Err(what) => Err(ApiError::new(Code::UnknownModel, what)),
        }
    }
}

fn latch(account: &Account, now: Timestamp) -> Option<Latch> {
    account.latch().map(|latched| shown(account.name(), &latched, now))
}

/// A latch as it is told. It counts by a clock that is never set; what is told is the time of day.
fn shown(account: &str, latched: &Latched, now: Timestamp) -> Latch {
    let left = latched.until.map(|until| until.saturating_duration_since(Instant::now()));
    Latch {
        account: account.to_owned(),
        reason: match latched.reason {
            governor::LatchReason::RateLimit => LatchReason::RateLimit,
            governor::LatchReason::Quota => LatchReason::Quota,
            governor::LatchReason::Auth => LatchReason::Auth,
        },
        until: left.map(|left| rfc3339(now.after(left))),
        said: latched.said.to_string(),
    }
}

const fn load(view: &View) -> ModelLoad {
    ModelLoad {
        limit: view.limit,
        in_flight: view.in_flight,
        waiting: view.waiting,
        held_back: view.held_back,
        pledged: view.pledged,
        requests_left: view.requests_left,
        tokens_left: view.tokens_left,
        cuts: view.cuts,
    }
}

fn budget((node, standing): (Node, Standing)) -> Option<BudgetView> {
    let Standing { cap, spent, reserved } = standing;
    let is_idle = cap.is_none() && spent.get() == 0 && reserved.get() == 0;
    let until = node.until().map(rfc3339);
    let (kind, user) = match node {
        Node::Batch(_) => return None,
        Node::Process => (BudgetKind::Process, None),
        Node::User { user, .. } => (BudgetKind::User, Some(user.to_string())),
    };
    (!is_idle).then(|| BudgetView {
        kind,
        user,
        until,
        spent_usd: spent.usd(),
        reserved_usd: reserved.usd(),
        cap_usd: cap.map(NanoUsd::usd),
    })
}
