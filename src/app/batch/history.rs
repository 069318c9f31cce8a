//! What is of record of a batch: its tasks, the latest attempt at each, and what follows from that for an input.
//!
//! A picture of one moment. Knows nothing of where the store lies, nor of what is under way.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::tasks::{Tasks, Wanted as Line};
use crate::{
    actor::supervisor::end_leftovers,
    app::state,
    clock::Clock,
    domain::{
        batch::{
            Known, Latest, LatestState, Misfit, Plan, Resume, RetryFailed, StaleLines, Start, Wanted,
            reconcile,
        },
        event::{RestartCause, RunEnd},
        id::{BatchId, RunId, Seq},
        outcome::{Breakage, Outcome},
        run::{Input, Run},
        task::TaskSpec,
        time::Timestamp,
        usage::Usage,
    },
    store::{EventStore, RunFilter, RunRecord, StoreError, TaskRecord, Ticket},
};

/// Records that are read at once: each holds the whole answer of its run.
const PAGE: usize = 500;

/// An attempt at a task.
#[derive(Clone, Copy, Debug)]
pub(in crate::app) struct Attempt {
    pub(in crate::app) run: RunId,
    pub(in crate::app) attempt: u32,
    /// When and how it ended, if it has.
    pub(in crate::app) end: Option<(Timestamp, Outcome)>,
}

/// What is of record of a batch.
#[derive(Debug, Default)]
pub(in crate::app) struct History {
    known: Vec<TaskRecord>,
    latest: BTreeMap<Arc<str>, Attempt>,
    /// What all attempts that have ended used up, earlier ones included.
    pub(in crate::app) usage: Usage,
}

impl History {
    pub(in crate::app) async fn read(store: &dyn EventStore, batch: BatchId) -> Result<Self, StoreError> {
        let known = store.tasks(batch).await?;
        let mut history = Self { known, ..Self::default() };
        let mut filter = RunFilter { batch: Some(batch), limit: Some(PAGE), ..RunFilter::default() };
        loop {
            // The newest first.
            let page = store.runs(filter.clone()).await?;
            filter.before = page.first().map(|record| record.run);
            let is_last = page.len() < PAGE;
            page.iter().for_each(|record| history.take_in(record));
            if is_last {
                return Ok(history);
            }
        }
    }

    fn take_in(&mut self, record: &RunRecord) {
        if let Some(end) = &record.end {
            self.usage += end.usage;
        }
        let Some(task) = record.task_id.clone() else { return };
        let known = self.latest.get(&task);
        if known.is_none_or(|known| (known.attempt, known.run) < (record.attempt, record.run)) {
            let end =
                record.end.as_ref().map(|end| (record.ended_at.unwrap_or(record.submitted_at), end.outcome));
            self.latest.insert(task, Attempt { run: record.run, attempt: record.attempt, end });
        }
    }

    /// Compares an input with what is of record. The last three say what becomes of lines that changed, which ended tasks
    /// get another attempt, and how many attempts a task gets by itself.
    ///
    /// # Errors
    /// Lines that changed, or are missing.
    pub(in crate::app) fn plan(
        &self,
        tasks: &dyn Tasks,
        chosen: &[usize],
        (stale_lines, retry_failed, retries): (StaleLines, RetryFailed, u32),
    ) -> Result<Plan, Misfit> {
        let mut wanted: Vec<Wanted> = recorded(tasks)
            .map(|TaskRecord { task_id, hash }| Wanted { id: task_id, hash, selected: false })
            .collect();
        for place in chosen {
            if let Some(task) = wanted.get_mut(*place) {
                task.selected = true;
            }
        }
        let known: Vec<Known> = self.known.iter().map(|task| self.known(task)).collect();
        let mut plan = reconcile(&wanted, &known, stale_lines, retry_failed, retries)?;
        // The plan follows the input; tasks start in the order in which they were chosen.
        let order: BTreeMap<usize, usize> =
            chosen.iter().enumerate().map(|(at, place)| (*place, at)).collect();
        plan.start.sort_by_key(|start| order.get(&start.task).copied());
        plan.resume.sort_by_key(|resume| order.get(&resume.task).copied());
        Ok(plan)
    }

    fn known(&self, task: &TaskRecord) -> Known {
        let latest = self.latest.get(&task.task_id).map(|record| Latest {
            run: record.run,
            attempt: record.attempt,
            state: record.end.map_or(LatestState::Open, |(_, outcome)| LatestState::Ended(outcome)),
        });
        Known { id: task.task_id.clone(), hash: task.hash.clone(), latest }
    }

    /// The hash of each line that is of record, by its task.
    fn hashes(&self) -> BTreeMap<&str, &str> {
        self.known.iter().map(|task| (&*task.task_id, &*task.hash)).collect()
    }

    /// What is to be put on record of these tasks. A line that changed stays stale until its task is chosen.
    pub(in crate::app) fn changed(&self, tasks: &dyn Tasks, chosen: &[usize]) -> Vec<TaskRecord> {
        let hashes = self.hashes();
        let chosen: BTreeSet<usize> = chosen.iter().copied().collect();
        let is_changed = |(place, task): &(usize, TaskRecord)| {
            hashes.get(&*task.task_id).is_none_or(|hash| *hash != task.hash && chosen.contains(place))
        };
        recorded(tasks).enumerate().filter(is_changed).map(|(_, task)| task).collect()
    }

    /// Whether this start is for a line that is of record as another.
    pub(in crate::app) fn is_of_a_changed_line(&self, tasks: &dyn Tasks) -> impl Fn(&Start) -> bool {
        let hashes = self.hashes();
        move |start| {
            let known = tasks.id(start.task).and_then(|id| hashes.get(&**id).copied());
            start.predecessor.is_some() && known.is_some() && known != tasks.hash(start.task)
        }
    }

    /// The latest attempt at a task.
    pub(in crate::app) fn latest(&self, task: &str) -> Option<Attempt> {
        self.latest.get(task).copied()
    }

    /// The ids of all tasks, in the order in which they were recorded.
    pub(in crate::app) fn ids(&self) -> impl Iterator<Item = Arc<str>> {
        self.known.iter().map(|task| task.task_id.clone())
    }
}

fn recorded(tasks: &dyn Tasks) -> impl Iterator<Item = TaskRecord> {
    (0..tasks.count()).filter_map(|place| {
        let (id, hash) = (tasks.id(place)?, tasks.hash(place)?);
        Some(TaskRecord { task_id: id.clone(), hash: hash.to_owned() })
    })
}

/// Ends an open run that nothing works on: its task starts again as another attempt, or never will.
pub(in crate::app) async fn abandon(
    store: &dyn EventStore,
    run: RunId,
    clock: &dyn Clock,
) -> Result<(), StoreError> {
    let (mut state, _) = state::read_run(store, run).await?;
    end_leftovers(&state).await;
    for input in
        [Input::Restart { cause: RestartCause::Process, error: None }, Input::End(Outcome::Cancelled)]
    {
        let Ok(facts) = state.decide(input, clock.now()) else { break };
        let ticket = store.append(run, state.seq(), &facts)?;
        for fact in &facts {
            state.evolve(fact);
        }
        store.durable(ticket).await?;
    }
    Ok(())
}

/// Puts new attempts of the plan on record, those that `asked` names. For lines that changed it comes before the line's
/// new hash: the log never has that hash with a run of the old line as the latest, which would be taken for this line's.
pub(in crate::app) async fn submit_asked(
    store: &dyn EventStore,
    batch: BatchId,
    tasks: &dyn Tasks,
    plan: &mut Plan,
    asked: impl Fn(&Start) -> bool,
    clock: &dyn Clock,
) -> Result<(), StoreError> {
    let mut last = None;
    for start in std::mem::take(&mut plan.start) {
        let Start { task: place, attempt, predecessor, made } = start;
        let line = if asked(&start) { tasks.spec(place).await.ok() } else { None };
        let Some(line) = line else {
            plan.start.push(start);
            continue;
        };
        let run = state::new_run();
        let of_batch = |spec| Arc::new(TaskSpec { batch: Some(batch), attempt, predecessor, ..spec });
        last = Some(match line {
            Line::Whole(spec) => append(store, run, vec![Input::Submit(of_batch(spec))], clock)?,
            Line::Incomplete(spec, why) => record_failed(store, run, of_batch(spec), why, clock)?,
        });
        plan.resume.push(Resume { task: place, run, attempt, made });
    }
    if let Some(ticket) = last {
        store.durable(ticket).await?;
    }
    Ok(())
}

/// Puts a run on record that ends as it begins: what its task names is not to be had.
pub(super) fn record_failed(
    store: &dyn EventStore,
    run: RunId,
    spec: Arc<TaskSpec>,
    why: String,
    clock: &dyn Clock,
) -> Result<Ticket, StoreError> {
    let end = Input::GiveUp { breakage: Breakage::Setup, error: why };
    append(store, run, vec![Input::Submit(spec), end], clock)
}

/// Appends what these inputs give rise to in a new run.
fn append(
    store: &dyn EventStore,
    run: RunId,
    inputs: Vec<Input>,
    clock: &dyn Clock,
) -> Result<Ticket, StoreError> {
    let mut state = Run::new(run);
    let mut facts = Vec::new();
    for input in inputs {
        // A new run refuses none of them.
        let told = state.decide(input, clock.now()).unwrap_or_default();
        told.iter().for_each(|fact| state.evolve(fact));
        facts.extend(told);
    }
    store.append(run, Seq::START, &facts)
}

/// How a run of record ended, if it has.
pub(in crate::app) async fn end_of(
    store: &dyn EventStore,
    run: RunId,
) -> Result<Option<Arc<RunEnd>>, StoreError> {
    let this = RunFilter { id_prefix: Some(run.to_string()), limit: Some(1), ..RunFilter::default() };
    Ok(store.runs(this).await?.pop().and_then(|record| record.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::SystemClock, domain::usage::NanoUsd, store::memory::MemoryStore};

    #[tokio::test]
    async fn an_abandoned_run_has_cost_what_its_open_request_may_have_and_nothing_if_it_had_not_gone_out() {
        let cost = Some(NanoUsd::from_usd(0.5));
        let usage = Usage { input: 10, output: 90, cost, estimated: true, ..Usage::default() };
        for sent in [Some(usage), None] {
            let (store, run) = (MemoryStore::default(), RunId::from_bytes([7; 16]));
            let spec = serde_json::json!({"task": "x", "attempt": 1, "model": "m", "workspace": "/w"});
            let spec: Arc<TaskSpec> = Arc::new(serde_json::from_value(spec).unwrap());
            let start = Input::Start { model: "m".into(), tools: Vec::new() };
            let sends = sent.map(|usage| Input::RequestSent { turn: 1, attempt: 1, usage });
            let inputs = [Input::Submit(spec), start].into_iter().chain(sends).collect();
            append(&store, run, inputs, &SystemClock).unwrap();
            abandon(&store, run, &SystemClock).await.unwrap();
            let end = end_of(&store, run).await.unwrap().unwrap();
            assert_eq!((end.outcome, end.usage), (Outcome::Cancelled, sent.unwrap_or_default()));
        }
    }
}
