//! What the journal already says: the results that follow from it.

use std::collections::BTreeSet;

use super::{BatchError, Options, ResultLine, Stopper, history::end_of, journal::Journal, results::Results};
use crate::{
    app::{conversation::chat_completions, input::InputTask, isolation, state::read_run},
    domain::{batch::Plan, event::RunEnd, id::RunId, task::TaskSpec},
    store::EventStore,
    tool::isolate::Change,
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
        if let Some(latest) = journal.history.latest(&task.id)
            && let Some((ended_at, _)) = latest.end
        {
            ended.push((ended_at, place, task, latest));
        }
    }
    if !options.keep_order {
        ended.sort_by_key(|(ended_at, place, ..)| (*ended_at, *place));
    }
    let (store, patches) = (&*journal.state.store, isolation::patches(&journal.state));
    let mut lines = Vec::with_capacity(ended.len());
    for (_, place, task, latest) in &ended {
        let Some(end) = end_of(store, latest.run).await? else { continue };
        let change = isolation::change(&patches, latest.run).await;
        let line =
            result_line(store, task, latest.run, latest.attempt, &end, change, options.with_messages).await?;
        lines.push((*place, line));
    }
    match (&journal.out, options.keep_order) {
        (Some(out), false) => {
            Ok(Results::to_file(out, lines.into_iter().map(|(_, line)| line))?.until(stopper.clone()))
        }
        (Some(out), true) => {
            let results = Results::to_file(out, [])?.until(stopper.clone());
            keep_order(results, lines, chosen, tasks.len()).await
        }
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
    change: Option<Change>,
    with_messages: bool,
) -> Result<Vec<u8>, BatchError> {
    let spec = TaskSpec { attempt, ..task.spec.clone() };
    let line = ResultLine::new(run, &spec, end).with_change(change);
    if !with_messages {
        return Ok(line.to_bytes());
    }
    let (state, _) = read_run(store, run).await?;
    let asked = state.spec().map_or(&spec, |asked| &**asked);
    let messages = chat_completions(asked, state.history());
    Ok(line.with_messages(messages).to_bytes())
}
