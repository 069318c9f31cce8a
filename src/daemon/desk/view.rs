//! A run as it is listed and shown: from its record, and while it is open from the board.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use super::{Desk, gates::named};
use crate::{
    app::waiting,
    clock::rfc3339,
    daemon::wire::{CallView, RunState, RunView, Tokens},
    domain::{
        event::ParkReason,
        gate::Gates,
        glance::{CallGlance, CallStage, Glance, Stand},
        time::Timestamp,
        usage::Usage,
    },
    model::governor::Latched,
    store::RunRecord,
};

/// Characters of what a model said that a list shows.
const SAID_CHARS: usize = 200;

/// What keeps runs from getting a slot, at one moment.
pub(super) struct Keepers {
    gates: Gates,
    /// Why the accounts of models are shut, and until when. A model with others to fall back on is not kept by its account.
    shut: BTreeMap<Arc<str>, (ParkReason, Option<Timestamp>)>,
    now: Timestamp,
}

impl Desk {
    /// What keeps runs from getting a slot now.
    pub(super) async fn keepers(&self) -> Keepers {
        let supervisor = &self.herder.supervisor;
        let (models, now) = (&supervisor.services().models, self.now());
        let shut = |name: Arc<str>| {
            let model = models.get(&name).filter(|model| model.fallbacks.is_empty())?;
            let Latched { reason, until, .. } = model.governor.account().latch()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            Some((name, (reason.into(), left.map(|left| now.after(left)))))
        };
        Keepers {
            gates: supervisor.gates().await,
            shut: models.names().into_iter().filter_map(shut).collect(),
            now,
        }
    }

    /// A run in short.
    pub(super) fn view(&self, record: &RunRecord, keepers: &Keepers) -> RunView {
        let glance = if record.end.is_some() { None } else { self.hub.board().get(record.run) };
        let change = record.end.as_ref().and_then(|_| self.change(record.run));
        let view = view(record, glance.as_deref(), keepers).with_change(change.as_ref());
        match self.left(record.run) {
            Some(why) if record.end.is_none() => RunView { state: RunState::Queued, phase: why, ..view },
            Some(_) | None => view,
        }
    }
}

/// A run in short, from what is known of it.
pub(super) fn view(record: &RunRecord, glance: Option<&Glance>, keepers: &Keepers) -> RunView {
    let asked = record.asked.as_deref();
    let end = record.end.as_deref();
    let usage = end.map(|end| end.usage).or_else(|| Some(glance?.usage)).unwrap_or_default();
    RunView {
        id: record.run.to_string(),
        batch: record.batch.map(|batch| batch.to_string()),
        task_id: record.task_id.as_deref().map(str::to_owned),
        attempt: record.attempt,
        predecessor: asked.and_then(|asked| asked.predecessor).map(|run| run.to_string()),
        about: asked.map(|asked| asked.about.to_string()).unwrap_or_default(),
        model: asked.map(|asked| asked.model.to_string()).unwrap_or_default(),
        labels: asked.map(|asked| asked.labels.clone()).unwrap_or_default(),
        priority: asked.map_or(0, |asked| asked.priority),
        state: state(record, glance, keepers),
        phase: phase(record, glance, keepers),
        outcome: end.map(|end| end.outcome.as_str().to_owned()),
        detail: end.and_then(|end| end.outcome.detail()).map(str::to_owned),
        error: end.and_then(|end| end.error.clone()),
        turns: end.map(|end| end.turns).or_else(|| Some(glance?.turn)).unwrap_or_default(),
        calls: end.map(|end| end.calls).or_else(|| Some(glance?.answered)).unwrap_or_default(),
        open_calls: glance.map(open_calls).unwrap_or_default(),
        usage: tokens(usage),
        cost_usd: usage.cost.map(|cost| cost.usd()),
        submitted_at: rfc3339(record.submitted_at),
        started_at: glance.and_then(|glance| glance.started_at).map(rfc3339).or_else(|| started(record)),
        ended_at: record.ended_at.map(rfc3339),
        duration_ms: end.map(|end| end.duration_us / 1_000),
        said: end.map_or_else(
            || glance.map(|glance| glance.text.to_string()).unwrap_or_default(),
            |end| end.text.chars().take(SAID_CHARS).collect(),
        ),
        branch: None,
        base: None,
        patch_path: None,
        files_changed: None,
    }
}

/// When a run that has ended got its slot, if it did.
fn started(record: &RunRecord) -> Option<String> {
    let end = record.end.as_deref()?;
    let queued = i64::try_from(end.queued_us).ok()?;
    (end.turns > 0)
        .then(|| rfc3339(Timestamp::from_micros(record.submitted_at.as_micros().saturating_add(queued))))
}

fn state(record: &RunRecord, glance: Option<&Glance>, keepers: &Keepers) -> RunState {
    match glance {
        Some(glance) => standing(glance, keepers),
        None if record.end.is_some() => RunState::Ended,
        None => RunState::Queued,
    }
}

/// The state of a run that the board has.
pub(super) fn standing(glance: &Glance, keepers: &Keepers) -> RunState {
    if glance.is_answered() {
        return RunState::Queued;
    }
    if glance.is_held() || kept(glance, keepers).is_some() {
        return RunState::Paused;
    }
    match &glance.stand {
        Stand::New | Stand::Queued => RunState::Queued,
        Stand::Between | Stand::Thinking { .. } | Stand::Acting(_) => RunState::Running,
        Stand::Ended(_) => RunState::Ended,
    }
}

/// What keeps a run from starting, in words.
fn kept(glance: &Glance, Keepers { gates, shut, now }: &Keepers) -> Option<String> {
    if !matches!(glance.stand, Stand::New | Stand::Queued) || glance.ending.is_some() {
        return None;
    }
    if let Some(scope) = gates.shut_for(glance.batch, &glance.model) {
        return Some(format!("held by a pause of {}", named(scope)));
    }
    shut.get(&glance.model).map(|(reason, until)| waiting::words(*reason, *until, *now))
}

/// What a run that is held waits for, in words.
fn held(glance: &Glance, Keepers { shut, now, .. }: &Keepers) -> String {
    let Some(reason) = glance.parked.filter(|reason| !glance.paused && *reason != ParkReason::Paused) else {
        return "paused".to_owned();
    };
    let asked: Vec<String> = glance.approvals().map(|approval| approval_name(glance, approval)).collect();
    if reason == ParkReason::Approval {
        return format!("waits for approval {}", asked.join(", "));
    }
    let due = match glance.stand {
        Stand::Thinking { not_before, .. } => Some(not_before),
        Stand::New | Stand::Queued | Stand::Between | Stand::Acting(_) | Stand::Ended(_) => None,
    };
    let opens = shut.get(&glance.model).and_then(|(_, until)| *until);
    format!("waits: {}", waiting::words(reason, due.max(opens), *now))
}

/// What people call an approval: an open run is the latest attempt at its task.
fn approval_name(glance: &Glance, approval: u32) -> String {
    match &glance.task_id {
        Some(task) => format!("{task}.{approval}"),
        None => format!("{}.{approval}", glance.run),
    }
}

/// Where a run stands, in words.
fn phase(record: &RunRecord, glance: Option<&Glance>, keepers: &Keepers) -> String {
    match (record.end.as_deref(), glance) {
        (Some(end), _) => end.outcome.to_string(),
        (None, Some(glance)) => words(glance, keepers),
        (None, None) => "open".to_owned(),
    }
}

/// Where an open run stands, in words.
fn words(glance: &Glance, keepers: &Keepers) -> String {
    if glance.is_answered() {
        return waiting::ANSWERED.to_owned();
    }
    if glance.is_held() {
        return held(glance, keepers);
    }
    if let Some(what) = kept(glance, keepers) {
        return format!("queued: {what}");
    }
    if glance.is_interrupted() {
        return "interrupted: goes on once it has a slot".to_owned();
    }
    let stand = match &glance.stand {
        Stand::New | Stand::Queued => "queued: waits for a slot".to_owned(),
        Stand::Between => "between turns".to_owned(),
        Stand::Thinking { retries: 0, .. } => "thinking: waits for the model".to_owned(),
        Stand::Thinking { retries, .. } => format!("thinking: request {} of this turn", retries + 1),
        Stand::Acting(calls) => {
            let call = |call: &CallGlance| match call.stage {
                CallStage::Asked => format!("{} is judged", call.tool),
                CallStage::Deciding(approval) => {
                    format!("{} waits for approval {}", call.tool, approval_name(glance, approval))
                }
                CallStage::Waiting => format!("{} waits for its lock or permit", call.tool),
                CallStage::Running => format!("{} runs", call.tool),
            };
            format!("acting: {}", calls.iter().map(call).collect::<Vec<_>>().join(", "))
        }
        Stand::Ended(outcome) => outcome.to_string(),
    };
    match (glance.ending, glance.paused) {
        (Some(_), _) => format!("ending; {stand}"),
        (None, true) => format!("pausing; {stand}"),
        (None, false) => stand,
    }
}

fn open_calls(glance: &Glance) -> Vec<CallView> {
    let view = |call: &CallGlance| CallView {
        call: call.id.to_string(),
        tool: call.tool.to_string(),
        waits: call.stage != CallStage::Running,
        access: call.access.iter().map(ToString::to_string).collect(),
    };
    glance.calls().iter().map(view).collect()
}

pub(super) fn tokens(usage: Usage) -> Tokens {
    usage.into()
}
