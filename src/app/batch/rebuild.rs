//! What the journal already says: the results that follow from it, and open runs that nobody goes on with.

use std::{collections::BTreeSet, sync::Arc};

use super::{BatchError, Options, ResultLine, Stopper, journal::Journal, results::Results};
use crate::{
    app::{conversation::chat_completions, input::InputTask, state},
    clock::Clock,
    domain::{
        batch::{Plan, Resume, Start},
        event::{Envelope, RestartCause, RunEnd},
        id::{RunId, Seq},
        outcome::Outcome,
        run::{Input, Run},
        task::TaskSpec,
    },
    store::EventStore,
};

/// Makes the results anew from what the journal says.
pub(super) async fn rebuild(
    journal: &Journal,
    tasks: &[InputTask],
    chosen: &[usize],
    plan: &Plan,
    options: &Options,
    stopper: &Stopper,
) -> Result<Results, BatchError> {
    let again: BTreeSet<usize> =
        plan.start.iter().map(|one| one.task).chain(plan.resume.iter().map(|one| one.task)).collect();
    let mut ended = Vec::new();
    for (place, task) in tasks.iter().enumerate().filter(|(place, _)| !again.contains(place)) {
        if let Some(record) = journal.latest(&task.id)
            && let Some(end) = &record.end
        {
            ended.push((record.ended_at, place, task, record, end.clone()));
        }
    }
    if !options.keep_order {
        ended.sort_by_key(|(ended_at, place, ..)| (*ended_at, *place));
    }
    let store = &*journal.state.store;
    let mut lines = Vec::with_capacity(ended.len());
    for (_, place, task, record, end) in &ended {
        let line = result_line(store, task, record.run, record.attempt, end, options.with_messages).await?;
        lines.push((*place, line));
    }
    match (&options.out, options.keep_order) {
        (Some(out), false) => Results::to_file(out, lines.into_iter().map(|(_, line)| line)),
        (Some(out), true) => keep_order(Results::to_file(out, [])?, lines, chosen, tasks.len()).await,
        (None, true) => keep_order(Results::to_stdout(stopper.clone())?, lines, chosen, tasks.len()).await,
        (None, false) => {
            let mut results = Results::to_stdout(stopper.clone())?;
            for (place, line) in lines {
                results.write(place, line).await?;
            }
            Ok(results)
        }
    }
}

/// In the order of the input, tasks that are not chosen included where the journal has them.
async fn keep_order(
    results: Results,
    lines: Vec<(usize, Vec<u8>)>,
    chosen: &[usize],
    tasks: usize,
) -> Result<Results, BatchError> {
    let there: BTreeSet<usize> =
        lines.iter().map(|(place, _)| *place).chain(chosen.iter().copied()).collect();
    let mut results = results.in_order((0..tasks).filter(|place| there.contains(place)).collect());
    for (place, line) in lines {
        results.write(place, line).await?;
    }
    Ok(results)
}

pub(super) async fn result_line(
    store: &dyn EventStore,
    task: &InputTask,
    run: RunId,
    attempt: u32,
    end: &RunEnd,
    with_messages: bool,
) -> Result<Vec<u8>, BatchError> {
    let spec = TaskSpec { attempt, ..task.spec.clone() };
    let mut line = ResultLine::new(run, &spec, end);
    if with_messages {
        let log = store.read(run, Seq::START).await?;
        let state = Run::replay(run, log.iter().map(|envelope| &envelope.fact));
        let asked = state.spec().map_or(&spec, |asked| &**asked);
        line = line.with_messages(chat_completions(asked, state.history()));
    }
    // Every field has a JSON form; the fallback only keeps this total.
    let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
    bytes.push(b'\n');
    Ok(bytes)
}

/// Ends an open run that nothing works on: its task starts again as another attempt.
pub(super) async fn abandon(store: &dyn EventStore, run: RunId, clock: &dyn Clock) -> Result<(), BatchError> {
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

/// Puts on record the new attempts at tasks whose line changed. It comes before the line's new hash: the log never has
/// that hash with a run of the old line as the latest, which would be taken for this line's.
pub(super) async fn submit_changed(
    journal: &Journal,
    tasks: &[InputTask],
    plan: &mut Plan,
    clock: &dyn Clock,
) -> Result<(), BatchError> {
    let store = &*journal.state.store;
    let hashes = journal.hashes();
    let mut last = None;
    for start in std::mem::take(&mut plan.start) {
        let Start { task: place, attempt, predecessor, made } = start;
        let changed = tasks.get(place).filter(|task| {
            predecessor.is_some() && hashes.get(&*task.id).is_some_and(|hash| *hash != task.hash)
        });
        let run = state::new_run();
        let submitted = changed.and_then(|task| {
            let spec = TaskSpec { batch: Some(journal.batch), attempt, predecessor, ..task.spec.clone() };
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
