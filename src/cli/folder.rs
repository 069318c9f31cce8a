//! The runs of a state folder, in the shapes in which the daemon shows its own: one table and one JSON for both.
//!
//! Told from the log, so it is as true while another process writes as it is afterwards, and from whether there is such a
//! process: what was under way when the last one died is not any more. What only a process knows, as that a run is held or what
//! a call touches, is not known here.

use std::path::PathBuf;

use crate::{
    app::{
        approvals::name_of_run,
        conversation::chat_completions,
        isolation,
        state::{FindError, State, find, read_run, rest_lost},
        waiting,
    },
    clock::{Clock, SystemClock, rfc3339},
    daemon::wire::{
        self, ApprovalDetail, CallView, Counts, RunDetail, RunList, RunState, RunView, Tokens, requests,
    },
    domain::{
        event::ParkReason,
        id::{BatchId, RunId},
        message::Message,
        run::{Phase, Run, Stage},
        usage::Usage,
    },
    store::{EventStore, RunFilter, RunRecord, StoreError},
};

use super::{
    UsageError,
    args::{FilterArgs, OriginArgs},
    render::one_line,
};

/// Characters of a text of which only the beginning is shown.
const BEGINNING: usize = 120;

/// What an open run waits for that no process has.
const UNATTENDED: &str = "nobody is at work on it; it goes on at the next start";

/// What a run waits for beside that, if no process has it and it was paused.
const HELD: &str = "held until it is resumed";

/// The runs that are meant, the newest last, at most `limit` of them; and how many there are.
pub(super) async fn list(
    state: &State,
    filter: &FilterArgs,
    limit: Option<usize>,
) -> anyhow::Result<RunList> {
    let folder = Folder::of(state);
    let store = folder.store;
    let batch = match &filter.origin.batch {
        Some(name) => Some(self::batch(store, name).await?),
        None => None,
    };
    let records =
        store.runs(RunFilter { batch, task_id: filter.origin.task.clone(), ..RunFilter::default() }).await?;
    let since = filter.origin.since.map(|since| since.point(SystemClock.now()));
    let meant = records.iter().rev().filter(|record| {
        since.is_none_or(|since| record.submitted_at >= since)
            && filter.admits_outcome(record.end.as_ref().map(|end| end.outcome))
    });
    let limit = limit.unwrap_or(usize::MAX);
    let (mut runs, mut counts) = (Vec::new(), Counts::default());
    for record in meant {
        // A log is read only of what is shown, if it is not the log that says whether it is meant.
        if runs.len() < limit || filter.needs_log() {
            let run = folder.view(record).await?;
            if !filter.admits(&run) {
                continue;
            }
            if runs.len() < limit {
                runs.push(run);
            }
        }
        counts.total += 1;
        match &record.end {
            Some(end) => *counts.ended.entry(end.outcome.as_str().to_owned()).or_default() += 1,
            None => counts.open += 1,
        }
    }
    runs.reverse();
    Ok(RunList { runs, next: None, counts })
}

/// What people were asked about calls of the runs that are meant, the newest last; of runs that have ended only with `all`. And
/// the runs whose logs could not be read.
pub(super) async fn approvals(
    store: &dyn EventStore,
    origin: &OriginArgs,
    all: bool,
) -> anyhow::Result<(Vec<ApprovalDetail>, Vec<RunId>)> {
    let batch = match &origin.batch {
        Some(name) => Some(self::batch(store, name).await?),
        None => None,
    };
    let filter = RunFilter {
        batch,
        ended: (!all).then_some(false),
        task_id: origin.task.clone(),
        labels: origin.labels.clone(),
        model: origin.model.clone(),
        since: origin.since.map(|since| since.point(SystemClock.now())),
        ..RunFilter::default()
    };
    let (mut asked, mut unread) = (Vec::new(), Vec::new());
    for RunRecord { run, .. } in store.runs(filter).await? {
        let (state, log) = match read_run(store, run).await {
            // One run that cannot be read hides no other.
            Err(StoreError::Damaged { .. }) => {
                unread.push(run);
                continue;
            }
            read => read?,
        };
        if !state.approvals().is_empty() {
            asked.extend(wire::approvals(&state, &name_of_run(store, &state).await?, &log));
        }
    }
    Ok((asked, unread))
}

/// A run by its id, the beginning of one, or its task's id.
pub(super) async fn detail(state: &State, name: &str, messages: bool) -> anyhow::Result<RunDetail> {
    let folder = Folder::of(state);
    let record = find(folder.store, name).await?;
    let (state, log) = read_run(folder.store, record.run).await?;
    let Some(spec) = state.spec() else { anyhow::bail!(rest_lost(&record)) };
    let change = isolation::change(&folder.patches, record.run).await;
    let name = name_of_run(folder.store, &state).await?;
    Ok(RunDetail {
        run: folder.shown(&record, &state).with_change(change.as_ref()),
        isolate: Some(spec.isolate.as_str().to_owned()),
        kept: change.and_then(|change| change.kept),
        task: spec.task.to_string(),
        workspace: spec.workspace.to_string(),
        parent: spec.parent.map(|parent| parent.to_string()),
        max_turns: spec.limits.turns(),
        events: state.seq().get(),
        text: record.end.as_ref().map(|end| end.text.to_string()),
        requests: requests(&log),
        approvals: wire::approvals(&state, &name, &log).into_iter().map(|detail| detail.approval).collect(),
        messages: messages.then(|| chat_completions(spec, state.history())),
    })
}

/// A batch by its id or its name; of several with one name, the latest.
async fn batch(store: &dyn EventStore, name: &str) -> anyhow::Result<BatchId> {
    let batches = store.batches().await?;
    let found = batches.iter().rev().find(|batch| batch.name == name || batch.id.to_string() == name);
    found.map(|batch| batch.id).ok_or_else(|| {
        let known: Vec<&str> = batches.iter().map(|batch| &*batch.name).collect();
        let want = if known.is_empty() {
            "there are none here".to_owned()
        } else {
            format!("want one of: {}", known.join(", "))
        };
        UsageError(format!("there is no batch {name:?}; {want}")).into()
    })
}

/// What runs are shown by.
struct Folder<'a> {
    store: &'a dyn EventStore,
    patches: PathBuf,
    /// Whether a process is at work on those that are open.
    is_attended: bool,
}

impl<'a> Folder<'a> {
    fn of(state: &'a State) -> Self {
        Self { store: &*state.store, patches: isolation::patches(state), is_attended: state.is_attended() }
    }

    async fn view(&self, record: &RunRecord) -> Result<RunView, StoreError> {
        match read_run(self.store, record.run).await {
            Ok((run, _)) => {
                let change = isolation::change(&self.patches, record.run).await;
                Ok(self.shown(record, &run).with_change(change.as_ref()))
            }
            // One run that cannot be read hides no other.
            Err(StoreError::Damaged { .. }) => {
                let mut view = self.shown(record, &Run::new(record.run));
                if let Some(asked) = &record.asked {
                    (view.about, view.model) = (asked.about.to_string(), asked.model.to_string());
                    (view.labels, view.priority) = (asked.labels.clone(), asked.priority);
                }
                let stands = record.end.as_ref().map_or("open".to_owned(), |end| end.outcome.to_string());
                view.phase = format!("{stands}: its log is damaged");
                if record.end.is_none() {
                    view.state = if self.is_attended { RunState::Running } else { RunState::Queued };
                }
                Ok(view)
            }
            Err(error) => Err(error),
        }
    }

    fn shown(&self, record: &RunRecord, run: &Run) -> RunView {
        let (spec, end) = (run.spec(), record.end.as_deref());
        let usage = end.map_or_else(|| run.usage(), |end| end.usage);
        RunView {
            id: record.run.to_string(),
            batch: record.batch.map(|batch| batch.to_string()),
            task_id: record.task_id.as_deref().map(str::to_owned),
            attempt: record.attempt,
            predecessor: spec.and_then(|spec| spec.predecessor).map(|run| run.to_string()),
            about: spec.map(|spec| one_line(&spec.task, BEGINNING)).unwrap_or_default(),
            model: spec.map(|spec| spec.model.to_string()).unwrap_or_default(),
            labels: spec.map(|spec| spec.labels.clone()).unwrap_or_default(),
            priority: spec.map(|spec| spec.priority).unwrap_or_default(),
            state: if end.is_some() { RunState::Ended } else { self.state(run) },
            phase: end.map_or_else(|| self.phase(run), |end| end.outcome.to_string()),
            outcome: end.map(|end| end.outcome.as_str().to_owned()),
            detail: end.and_then(|end| end.outcome.detail()).map(str::to_owned),
            error: end.and_then(|end| end.error.as_deref()).map(str::to_owned),
            turns: end.map_or_else(|| run.turn(), |end| end.turns),
            calls: end.map_or_else(|| run.answered(), |end| end.calls),
            open_calls: self.open_calls(run),
            usage: tokens(usage),
            cost_usd: usage.cost.map(|cost| cost.usd()),
            submitted_at: rfc3339(record.submitted_at),
            started_at: run.started_at().map(rfc3339),
            ended_at: record.ended_at.map(rfc3339),
            duration_ms: end.map(|end| end.duration_us / 1_000),
            said: said(run),
            branch: None,
            base: None,
            patch_path: None,
            files_changed: None,
        }
    }

    /// Whether somebody is at work on a run that has a slot as far as its log says.
    const fn is_at_work(&self, run: &Run) -> bool {
        self.is_attended && !run.is_interrupted()
    }

    /// Whether it goes on only once somebody resumes it, whoever starts over the folder.
    fn is_held(&self, run: &Run) -> bool {
        !self.is_attended && run.is_paused() && run.outcome().is_none()
    }

    fn state(&self, run: &Run) -> RunState {
        if self.is_held(run) {
            return RunState::Paused;
        }
        match run.phase() {
            Phase::Ended(_) => RunState::Ended,
            Phase::New | Phase::Queued => RunState::Queued,
            Phase::Between | Phase::Thinking { .. } | Phase::Acting(_) if is_answered(run) => {
                RunState::Queued
            }
            Phase::Between | Phase::Thinking { .. } | Phase::Acting(_) if run.parked().is_some() => {
                RunState::Paused
            }
            // It has no slot any more.
            Phase::Between | Phase::Thinking { .. } | Phase::Acting(_) if !self.is_at_work(run) => {
                RunState::Queued
            }
            Phase::Between | Phase::Thinking { .. } | Phase::Acting(_) => RunState::Running,
        }
    }

    fn open_calls(&self, run: &Run) -> Vec<CallView> {
        let Phase::Acting(calls) = run.phase() else { return Vec::new() };
        let open = calls.iter().filter_map(|open| {
            let waits = match open.stage {
                Stage::Asked
                | Stage::Deciding(_)
                | Stage::Rejected(..)
                | Stage::Judged(_)
                | Stage::InDoubt(..) => true,
                Stage::Started(..) => !self.is_at_work(run),
                Stage::Answered(_) => return None,
            };
            let (call, tool) = (open.call.id.to_string(), open.call.name.to_string());
            Some(CallView { call, tool, waits, access: Vec::new() })
        });
        open.collect()
    }

    /// Where a run stands, in words.
    fn phase(&self, run: &Run) -> String {
        let asked: Vec<String> =
            run.open_approvals().map(|asked| approval_name(run, asked.approval)).collect();
        if self.is_held(run) {
            return match &*asked {
                [] => HELD.to_owned(),
                asked => format!("waits for approval {}; {HELD}", asked.join(", ")),
            };
        }
        if is_answered(run) {
            return if self.is_attended {
                waiting::ANSWERED.to_owned()
            } else {
                format!("answered: {UNATTENDED}")
            };
        }
        if let Some(ParkReason::Approval) = run.parked() {
            return format!("waits for approval {}", asked.join(", "));
        }
        if let Some(reason) = run.parked() {
            let words = waiting::words(reason, run.not_before(), SystemClock.now());
            return if reason == ParkReason::Paused { words } else { format!("waits: {words}") };
        }
        let has_begun = matches!(run.phase(), Phase::Between | Phase::Thinking { .. } | Phase::Acting(_));
        if has_begun && !self.is_at_work(run) {
            let until = if self.is_attended { "goes on once it has a slot" } else { UNATTENDED };
            return format!("interrupted: {until}");
        }
        match run.phase() {
            Phase::New => "new".to_owned(),
            Phase::Queued if self.is_attended => "queued: waits for a slot".to_owned(),
            Phase::Queued => format!("queued: {UNATTENDED}"),
            Phase::Between => "between turns".to_owned(),
            Phase::Thinking { attempt: 1, .. } => "thinking: waits for the model".to_owned(),
            Phase::Thinking { attempt, .. } => format!("thinking: request {attempt} of this turn"),
            Phase::Acting(calls) => {
                let running = calls
                    .iter()
                    .filter(|open| open.is_started())
                    .map(|open| format!("{} runs", open.call.name));
                let waiting =
                    run.waiting_calls().map(|call| format!("{} waits for its lock or permit", call.name));
                let asking = asked.into_iter().map(|name| format!("approval {name} is waited for"));
                format!("acting: {}", running.chain(waiting).chain(asking).collect::<Vec<_>>().join(", "))
            }
            Phase::Ended(outcome) => outcome.to_string(),
        }
    }
}

const fn tokens(usage: Usage) -> Tokens {
    Tokens { input: usage.input, output: usage.output, cached: usage.cached, estimated: usage.estimated }
}

fn said(run: &Run) -> String {
    let text = run.history().iter().rev().find_map(|message| match message {
        Message::Assistant(reply) => Some(&*reply.text).filter(|text| !text.is_empty()),
        Message::System(_) | Message::User(_) | Message::Tool(_) => None,
    });
    one_line(text.unwrap_or_default(), BEGINNING)
}

/// What people call an approval: an open run is the latest attempt at its task.
fn approval_name(run: &Run, approval: u32) -> String {
    match run.spec().and_then(|spec| spec.task_id.as_ref()) {
        Some(task) => format!("{task}.{approval}"),
        None => format!("{}.{approval}", run.id()),
    }
}

/// Whether people have decided about all that it was parked for.
fn is_answered(run: &Run) -> bool {
    run.parked() == Some(ParkReason::Approval) && run.open_approvals().next().is_none()
}

/// The run that a name stands for, or nothing if there is no name.
pub(super) async fn named(
    store: &dyn EventStore,
    name: Option<&str>,
) -> Result<Option<RunRecord>, FindError> {
    match name {
        Some(name) => find(store, name).await.map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
