//! What was spent before this process began, as the log says: totals survive a restart.

use std::collections::BTreeMap;

use super::state::read_run;
use crate::{
    actor::Supervisor,
    domain::{
        budget::{Node, UserBudget},
        id::BatchId,
        time::Timestamp,
        usage::NanoUsd,
    },
    model::Model,
    store::{EventStore, RunFilter, RunRecord, StoreError},
};

/// Records that are read at once: each holds the whole answer of its run.
const PAGE: usize = 500;

/// Sees to it that a model is at hand.
type Has<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// What the runs of a batch have cost, those that are open included. None of them may be live.
pub(in crate::app) async fn by_batch(
    supervisor: &Supervisor,
    store: &dyn EventStore,
    has: Has<'_>,
    batch: BatchId,
) -> Result<NanoUsd, StoreError> {
    let mut spent = NanoUsd::default();
    let mut pages = Pages::of(RunFilter { batch: Some(batch), ..RunFilter::default() });
    while let Some(page) = pages.next(store).await? {
        for record in &page {
            spent += cost(supervisor, store, has, record).await?;
        }
    }
    Ok(spent)
}

/// Has the supervisor know what users have spent of the budgets that it keeps. To be said before any run is taken up.
///
/// A run counts whole for the period in which it ended, and one that is open for the one that is running.
///
/// # Errors
/// The log cannot be read.
pub async fn restore_users(supervisor: &Supervisor, has: Has<'_>) -> Result<(), StoreError> {
    let services = supervisor.services();
    let (budgets, store, now) = (&services.settings.budgets, &*services.store, services.clock.now());
    let mut spent: BTreeMap<Node, NanoUsd> = BTreeMap::new();
    let mut pages = Pages::of(RunFilter::default());
    while !budgets.is_empty()
        && let Some(page) = pages.next(store).await?
    {
        for record in &page {
            let nodes = counted(budgets, record, now);
            if !nodes.is_empty() {
                let cost = cost(supervisor, store, has, record).await?;
                nodes.into_iter().for_each(|node| *spent.entry(node).or_default() += cost);
            }
        }
    }
    spent.into_iter().for_each(|(node, amount)| supervisor.spent(node, amount));
    Ok(())
}

/// The budgets of today that a run counts for.
fn counted(budgets: &[UserBudget], record: &RunRecord, now: Timestamp) -> Vec<Node> {
    let Some(owner) = record.asked.as_ref().and_then(|asked| asked.owner.as_ref()) else { return Vec::new() };
    let nodes = |when| UserBudget::of(budgets, owner, when).into_iter().map(|(node, _)| node);
    let running: Vec<Node> = nodes(now).collect();
    nodes(record.ended_at.unwrap_or(now)).filter(|node| running.contains(node)).collect()
}

/// Goes through all runs that match, the newest first.
struct Pages {
    filter: RunFilter,
    is_over: bool,
}

impl Pages {
    fn of(filter: RunFilter) -> Self {
        Self { filter: RunFilter { limit: Some(PAGE), ..filter }, is_over: false }
    }

    async fn next(&mut self, store: &dyn EventStore) -> Result<Option<Vec<RunRecord>>, StoreError> {
        if self.is_over {
            return Ok(None);
        }
        let page = store.runs(self.filter.clone()).await?;
        self.filter.before = page.first().map(|record| record.run);
        self.is_over = page.len() < PAGE;
        Ok(Some(page))
    }
}

async fn cost(
    supervisor: &Supervisor,
    store: &dyn EventStore,
    has: Has<'_>,
    record: &RunRecord,
) -> Result<NanoUsd, StoreError> {
    if let Some(end) = &record.end {
        return Ok(end.usage.cost.unwrap_or_default());
    }
    if let Some(asked) = &record.asked {
        has(&asked.model);
        let model = supervisor.services().models.get(&asked.model);
        let costs = |model: &Model| model.price.is_some_and(|price| !price.is_free());
        // Most logs need not be read for this.
        if model.is_some_and(|model| !costs(&model) && model.fallbacks.is_empty()) {
            return Ok(NanoUsd::default());
        }
    }
    match read_run(store, record.run).await {
        Ok((run, _)) => Ok(run.usage_at_most().cost.unwrap_or_default()),
        // Whoever takes it up is told.
        Err(StoreError::Damaged { .. }) => Ok(NanoUsd::default()),
        Err(error) => Err(error),
    }
}
