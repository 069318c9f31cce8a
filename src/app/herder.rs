//! herder at work: a supervisor over a state, put together from a configuration.

use std::{path::Path, sync::Arc};

use tokio::sync::broadcast;
use tokio_util::task::AbortOnDropHandle;

use super::{
    approvals::Spool,
    confinement, isolation,
    models::{ModelSetup, ModelsError, check_price, is_priced},
    own_files::{self, Exposed},
    state::State,
    tools::{self, ToolsError},
};
use crate::{
    actor::{Approvals, Live, Services, Settings, Supervisor},
    clock::SystemClock,
    config::{
        Config,
        policies::{self, PolicyError},
    },
    domain::{
        admission::Slots,
        policy::{Policy, Verdict},
    },
    store::StoreError,
    tool::{
        isolate::Isolation,
        toolbox::Toolbox,
        workspace::{Workspaces, hidden::Hidden},
    },
};

/// Live deltas that a watcher may be behind before it misses some. A watcher that reads at all is never that far behind.
const LIVE_BACKLOG: usize = 4_096;

/// herder at work.
pub struct Herder {
    /// The handle of its actors.
    pub supervisor: Supervisor,
    state: State,
    setup: Arc<ModelSetup>,
    warnings: Vec<String>,
}

/// Whether there is anybody who can be asked about calls that policy leaves to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum People {
    /// Nobody: those calls are denied.
    Absent,
    /// They answer when they come to it; until then the run waits without a slot.
    Asked,
}

/// See [`Herder::add_model`].
pub type AddModel = Arc<dyn Fn(&Config, &str) -> Result<(), ModelsError> + Send + Sync>;

/// Why herder cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Models(#[from] ModelsError),
    #[error(transparent)]
    Tools(#[from] ToolsError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Exposed(#[from] Exposed),
    #[error(transparent)]
    Log(#[from] StoreError),
    #[error("the actors could not be started")]
    Actors(#[source] ractor::SpawnErr),
}

impl Herder {
    /// Whether herder could start for tasks that ask these models. Makes and changes nothing.
    ///
    /// # Errors
    /// Something that the configuration names is not to be had.
    pub fn check<'a>(
        config: &Config,
        model_names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), StartError> {
        policy(config, &tools::toolbox(config, None)?)?;
        ModelSetup::default().models(config, model_names)?;
        Ok(())
    }

    /// Whether the answers of people can be relied upon in the state at `folder`, for runs in these workspaces. Makes and changes
    /// nothing.
    ///
    /// # Errors
    /// Commands that run unasked could give them.
    pub fn check_answers<'a>(
        config: &Config,
        people: People,
        folder: &Path,
        workspaces: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), StartError> {
        let toolbox = tools::toolbox(config, None)?;
        let policy = policy(config, &toolbox)?;
        let kept = own_files::relied_upon(config, (&toolbox, &policy), people, folder)?;
        let mut workspaces = workspaces.into_iter();
        Ok(workspaces.try_for_each(|workspace| own_files::check(&kept, folder, workspace))?)
    }

    /// Whether the costs of these models can be limited. Makes and changes nothing.
    ///
    /// # Errors
    /// The first whose price is not known.
    pub fn check_prices<'a>(
        config: &Config,
        model_names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), StartError> {
        ModelSetup::default().check_prices(config, model_names)?;
        Ok(())
    }

    /// Starts herder over `state`, for tasks that ask these models.
    ///
    /// # Errors
    /// Something that the configuration names is not to be had; nothing was run.
    pub async fn start<'a>(
        config: &Config,
        state: State,
        model_names: impl IntoIterator<Item = &'a str>,
        people: People,
    ) -> Result<Self, StartError> {
        let isolation = workspaces(config, &state).await?;
        Self::start_with(config, state, isolation, model_names, settings(config, people)).await
    }

    /// The same, where what earlier processes left of workspaces is put away already.
    ///
    /// # Errors
    /// As [`Herder::start`].
    pub(super) async fn start_with_workspaces<'a>(
        config: &Config,
        state: State,
        isolation: Arc<Isolation>,
        model_names: impl IntoIterator<Item = &'a str>,
        people: People,
    ) -> Result<Self, StartError> {
        Self::start_with(config, state, isolation, model_names, settings(config, people)).await
    }

    /// The same, for a run that no command goes on with: when its account is used up it ends, since it would wait for ever.
    ///
    /// # Errors
    /// As [`Herder::start`].
    pub async fn start_for_one(
        config: &Config,
        state: State,
        model_name: &str,
        people: People,
    ) -> Result<Self, StartError> {
        let settings = Settings { outlast_accounts: false, ..settings(config, people) };
        let isolation = workspaces(config, &state).await?;
        Self::start_with(config, state, isolation, [model_name], settings).await
    }

    async fn start_with<'a>(
        config: &Config,
        state: State,
        isolation: Arc<Isolation>,
        model_names: impl IntoIterator<Item = &'a str>,
        settings: Settings,
    ) -> Result<Self, StartError> {
        let toolbox = tools::toolbox(config, state.spill_root())?;
        let policy = policy(config, &toolbox)?;
        let people = if settings.approvals.is_some() { People::Asked } else { People::Absent };
        let warnings = confinement::warnings(config, (&toolbox, &policy), people);
        let relied_upon = match &state.folder {
            Some(folder) => own_files::relied_upon(config, (&toolbox, &policy), people, folder.path())?,
            None => Hidden::default(),
        };
        if let Some(folder) = &state.folder {
            Spool::of(folder.path()).settle(&*state.store, &SystemClock).await;
        }
        let setup = Arc::new(ModelSetup::default());
        let services = Arc::new(Services {
            store: state.store.clone(),
            clock: Arc::new(SystemClock),
            models: setup.models(config, model_names)?,
            toolbox,
            policy,
            workspaces: Workspaces::new(config.tools.read_roots.clone())
                .hiding(own_files::hidden(config, &state))
                .apart_from(relied_upon)
                .isolating(isolation),
            live: broadcast::channel::<Live>(LIVE_BACKLOG).0,
            settings,
        });
        tools::remove_left_behind();
        let supervisor = Supervisor::start(services).await.map_err(StartError::Actors)?;
        Ok(Self { supervisor, state, setup, warnings })
    }

    /// The state that it works on.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// What has a model at hand for runs that are to ask it, unless it is not configured or its server cannot be set up.
    pub fn add_model(&self) -> AddModel {
        let (setup, services) = (self.setup.clone(), self.supervisor.services().clone());
        Arc::new(move |config, name| setup.add(&services.models, config, name))
    }

    /// Sets the models up anew, as another configuration says. Runs keep those that they began with, and one that the
    /// configuration does not have any more stays as it was.
    ///
    /// # Errors
    /// The first whose server cannot be set up, or whose price is not known though costs are limited; nothing was changed.
    pub fn replace_models(&self, config: &Config) -> Result<(), ModelsError> {
        let models = &self.supervisor.services().models;
        let names = models.names();
        let configured = names.iter().filter(|name| config.check_model(name).is_ok());
        let fresh: Vec<_> =
            configured.map(|name| self.setup.model(config, name)).collect::<Result<_, _>>()?;
        // What these newly fall back on comes first, so that it is there when they are.
        for fallback in fresh.iter().flat_map(|model| &model.fallbacks) {
            self.setup.add(models, config, fallback)?;
        }
        if config.limits_costs() {
            let fallbacks =
                fresh.iter().flat_map(|model| &model.fallbacks).filter(|name| !names.contains(name));
            fallbacks
                .map(|name| check_price(models, name))
                .chain(fresh.iter().map(is_priced))
                .collect::<Result<(), _>>()
                .map_err(ModelsError::Unpriced)?;
        }
        fresh.into_iter().for_each(|model| models.insert(model));
        self.supervisor.look_again();
        Ok(())
    }

    /// Tools that tasks name, or all, which the policy lets do nothing because nobody is there to ask.
    pub fn tools_for_want_of_a_person<'a>(&self, named: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let services = self.supervisor.services();
        if services.settings.approvals.is_some() {
            return Vec::new();
        }
        let asks = |name: &&str| {
            let tool = services.toolbox.get(name);
            tool.is_some_and(|tool| services.policy.could_allow(name, tool.effect()) == Verdict::Ask)
        };
        named.into_iter().filter(asks).map(str::to_owned).collect()
    }

    /// What a person should know of what commands are kept from, a line each.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.warnings.iter().map(String::as_str)
    }

    /// Takes answers to approvals that other processes leave in the state folder, for as long as what this returns lives.
    pub fn take_answers(&self) -> Option<AbortOnDropHandle<()>> {
        let folder = self.state.folder.as_ref()?;
        let serving = Spool::of(folder.path()).serve(self.supervisor.clone());
        Some(AbortOnDropHandle::new(tokio::spawn(serving)))
    }

    /// Waits until what was handed to the log is on disk, and closes it. The supervisor has been drained before.
    pub async fn close(&self) {
        self.state.close().await;
    }
}

/// Workspaces of runs' own, once what earlier processes left of them is put away.
async fn workspaces(config: &Config, state: &State) -> Result<Arc<Isolation>, StartError> {
    let isolation = Arc::new(isolation::isolation(config, state));
    isolation::recover(&isolation, &*state.store).await?;
    Ok(isolation)
}

fn policy(config: &Config, toolbox: &Toolbox) -> Result<Policy, PolicyError> {
    let names: Vec<&str> = toolbox.names().map(|name| &**name).collect();
    policies::load_for(&config.defaults.policy, &names)
}

fn settings(config: &Config, people: People) -> Settings {
    let defaults = Settings::default();
    let grace = config.supervisor.grace();
    Settings {
        max_live_runs: config.supervisor.max_live_runs.most().get(),
        follow_models: matches!(config.supervisor.max_live_runs, Slots::Follow { .. }),
        outlast_accounts: defaults.outlast_accounts,
        max_running_calls: config.tools.max_parallel.get(),
        shards: config.supervisor.shards().get(),
        restart: config.supervisor.restart,
        stall_warn: config.timeouts.stall_warn(),
        stall: config.timeouts.stall(),
        first_token: config.timeouts.first_token(),
        turn: config.timeouts.turn().unwrap_or(defaults.turn),
        tool: config.timeouts.tool(),
        grace,
        stuck: grace + std::time::Duration::from_secs(10),
        drain: config.supervisor.drain(),
        max_cost: config.supervisor.max_cost_usd,
        budgets: config.budget.iter().map(Into::into).collect(),
        approvals: match people {
            People::Absent => None,
            People::Asked => Some(Approvals { expire: config.approvals.expire() }),
        },
    }
}
