//! The actors: the supervisor that admits runs, the run that works on a task, the executor that runs tools.
//!
//! Whatever owns state is an actor; whatever waits for slow work is a task that reports back by message. The rules
//! are in [`crate::domain`]; what is here appends what they decide and starts what they owe. Of the world it knows
//! a log, model providers and tools, each by its trait.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::broadcast;

use crate::{
    clock::Clock,
    domain::{
        budget::UserBudget,
        call::{Access, Arguments},
        id::RunId,
        policy::{Policy, Subject, Verdict},
        restart::RestartPolicy,
        run::Ask,
        usage::NanoUsd,
    },
    model::Models,
    store::EventStore,
    tool::{
        PANICKED, Preview, Tool,
        toolbox::Toolbox,
        workspace::{Workspace, Workspaces},
    },
};

pub mod executor;
pub mod run;
pub mod supervisor;

pub use run::jitter;
pub use supervisor::{Ended, Supervisor};

/// What every actor of a process works with.
pub struct Services {
    /// The log.
    pub store: Arc<dyn EventStore>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Models by name.
    pub models: Models,
    /// Tools by name.
    pub toolbox: Toolbox,
    /// What tools may do.
    pub policy: Policy,
    /// The folders that tools work in.
    pub workspaces: Workspaces,
    /// What is shown but not of record. Lossy: who reads too slowly misses some.
    pub live: broadcast::Sender<Live>,
    /// Numbers.
    pub settings: Settings,
}

impl Services {
    /// Says whether a call of `tool` with these arguments may touch this, and which rule says so.
    fn judge(
        &self,
        tool: &dyn Tool,
        workspace: &Workspace,
        access: &[Access],
        arguments: &Value,
    ) -> (Verdict, String) {
        judge_by(&self.policy, tool, workspace, access, arguments)
    }

    /// What a person is asked about a call; an error is why it cannot be made, in words for the model.
    async fn preview(
        &self,
        tool: Arc<dyn Tool>,
        workspace: &Arc<Workspace>,
        arguments: &Arguments,
        approvals: Approvals,
    ) -> Result<Ask, String> {
        let expires_at = approvals.expire.map(|time| self.clock.now().after(time));
        let Ok(arguments) = serde_json::from_str(arguments.as_str()) else {
            return Err("the arguments are not a JSON object".to_owned());
        };
        let workspace = workspace.clone();
        let preview = tokio::task::spawn_blocking(move || tool.preview(&workspace, &arguments)).await;
        let Preview { change, text } = preview.unwrap_or_else(|_| Err(PANICKED.to_owned()))?;
        Ok(Ask { change, preview: text, expires_at })
    }
}

/// Says whether a policy lets a call of `tool` with these arguments touch this, and which rule says so.
fn judge_by(
    policy: &Policy,
    tool: &dyn Tool,
    workspace: &Workspace,
    access: &[Access],
    arguments: &Value,
) -> (Verdict, String) {
    let paths: Vec<&str> = access.iter().map(|one| within(workspace, one)).collect();
    policy.judge(&Subject {
        tool: &tool.spec().name,
        effect: tool.effect(),
        paths: &paths,
        command: tool.command(arguments),
        arguments: Some(arguments),
    })
}

/// The path of what is touched as policies name it: relative to the workspace where it lies inside.
fn within<'a>(workspace: &Workspace, access: &'a Access) -> &'a str {
    let root = &**workspace.key();
    let inside = access.path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    inside.map_or(&*access.path, |rest| rest.trim_start_matches('/'))
}

/// How much at once, and how long.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Runs that have a slot at once.
    pub max_live_runs: usize,
    /// Whether runs start only as their models have places free.
    pub follow_models: bool,
    /// Whether a run waits, without a slot, when its account is used up or its key is refused; if not, it ends.
    pub outlast_accounts: bool,
    /// Calls that hold a permit at once.
    pub max_running_calls: usize,
    /// Actors that the runs are spread over.
    pub shards: usize,
    /// Whether a run whose actor died goes on.
    pub restart: RestartPolicy,
    /// How long a model may say nothing before a person is warned.
    pub stall_warn: Duration,
    /// How long a model may say nothing.
    pub stall: Duration,
    /// How long a model may take to its first word, if not as long as any silence.
    pub first_token: Option<Duration>,
    /// How long one request may take.
    pub turn: Duration,
    /// How long one call may take.
    pub tool: Duration,
    /// How long what runs may take to stop once it is told to.
    pub grace: Duration,
    /// How long a run that was told to end may take before it is given up as stuck, the grace of its tools included.
    pub stuck: Duration,
    /// How long runs may go on when herder is told to stop.
    pub drain: Duration,
    /// What may be spent from the start of the process on.
    pub max_cost: Option<NanoUsd>,
    /// What users may spend.
    pub budgets: Vec<UserBudget>,
    /// Whether people are asked about calls that policy leaves to them; if not, those are denied.
    pub approvals: Option<Approvals>,
}

/// How people are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Approvals {
    /// How long they have to answer, before a call is denied.
    pub expire: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_live_runs: 100,
            follow_models: false,
            outlast_accounts: true,
            max_running_calls: 64,
            shards: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            restart: RestartPolicy::OnFailure,
            stall_warn: Duration::from_secs(150),
            stall: Duration::from_secs(300),
            first_token: None,
            turn: Duration::from_secs(1_800),
            tool: Duration::from_secs(600),
            grace: Duration::from_secs(5),
            stuck: Duration::from_secs(15),
            drain: Duration::from_secs(25),
            max_cost: None,
            budgets: Vec::new(),
            approvals: None,
        }
    }
}

/// Something to show that is not of record.
#[derive(Clone, Debug)]
pub struct Live {
    /// The run.
    pub run: RunId,
    /// Its turn.
    pub turn: u32,
    /// What is shown.
    pub what: LiveDelta,
}

/// See [`Live`].
#[derive(Clone, Debug)]
pub enum LiveDelta {
    /// More of the model's text.
    Text(Arc<str>),
    /// More of what the model thinks aloud.
    Reasoning(Arc<str>),
}
