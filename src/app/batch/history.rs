//! What is of record of a batch: its tasks, the latest attempt at each, and what follows from that for an input.
//!
//! A picture of one moment. Knows nothing of where the store lies, nor of what is under way.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::tasks::Tasks;
use crate::{
    app::state,
    clock::Clock,
    domain::{
        batch::{
            Known, Latest, LatestState, Misfit, Plan, Resume, RetryFailed, StaleLines, Start, Wanted,
            reconcile,
        },
        event::{Envelope, RestartCause},
        id::{BatchId, RunId, Seq},
        outcome::Outcome,
        run::{Input, Run},
        task::TaskSpec,
        usage::Usage,
    },
    store::{EventStore, RunFilter, RunRecord, StoreError, TaskRecord},
};

/// What is of record of a batch.
#[derive(Debug, Default)]
pub(in crate::app) struct History {
    known: Vec<TaskRecord>,
    latest: BTreeMap<Arc<str>, RunRecord>,
    /// What all attempts that have ended used up, earlier ones included.
    pub(in crate::app) usage: Usage,
}

impl History {
    pub(in crate::app) async fn read(store: &dyn EventStore, batch: BatchId) -> Result<Self, StoreError> {
        let known = store.tasks(batch).await?;
        let mut history = Self { known, ..Self::default() };
        for record in store.runs(RunFilter { batch: Some(batch), ..RunFilter::default() }).await? {
            if let Some(end) = &record.end {
                history.usage += end.usage;
            }
            let Some(task) = record.task_id.clone() else { continue };
            let known = history.latest.get(&task);
            if known.is_none_or(|known| (known.attempt, known.run) < (record.attempt, record.run)) {
                history.latest.insert(task, record);
            }
        }
        Ok(history)
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
            state: record.end.as_ref().map_or(LatestState::Open, |end| LatestState::Ended(end.outcome)),
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
    pub(in crate::app) fn latest(&self, task: &str) -> Option<&RunRecord> {
        self.latest.get(task)
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
    let log: Vec<Envelope> = store.read(run, Seq::START).await?;
    let mut state = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
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
        let run = state::new_run();
        let spec = if asked(&start) { tasks.spec(place) } else { None };
        let submitted = spec.and_then(|spec| {
            let spec = TaskSpec { batch: Some(batch), attempt, predecessor, ..spec };
            Run::new(run).decide(Input::Submit(Arc::new(spec)), clock.now()).ok()
        });
        match submitted {
            Some(facts) => {
                last = Some(store.append(run, Seq::START, &facts)?);
                plan.resume.push(Resume { task: place, run, attempt, made });
            }
            None => plan.start.push(start),
        }
    }
    if let Some(ticket) = last {
        store.durable(ticket).await?;
    }
    Ok(())
}
