//! What `run` and `batch` do before they start, and how they speak to a person.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    net::SocketAddr,
    sync::Arc,
};

use tokio_util::task::AbortOnDropHandle;

use crate::{
    app::{
        herder::Herder,
        input::Rules,
        tools::{ToolsError, toolbox},
    },
    config::Config,
    daemon::users,
    telemetry::prometheus::{self, MetricsError},
};

/// Tells a person something on stderr.
pub(super) fn say(text: &str) {
    // Work goes on though nobody listens.
    let _ = writeln!(io::stderr(), "herder: {text}");
}

/// The user who gave the command.
pub(super) fn caller() -> Option<Arc<str>> {
    users::name(rustix::process::getuid().as_raw()).map(Into::into)
}

/// Who gives an answer, for the record: one without a name by their number, as the daemon has it.
pub(super) fn answerer() -> Option<Arc<str>> {
    caller().or_else(|| Some(rustix::process::getuid().as_raw().to_string().into()))
}

/// How a command speaks to whoever watches it.
pub(super) type Tell = fn(&str);

/// As [`say`], for a program that reads a line of JSON at a time.
pub(super) fn say_json(text: &str) {
    let _ = writeln!(io::stderr(), "{}", serde_json::json!({ "message": text }));
}

/// Serves metrics for as long as what this returns lives.
pub(super) fn serve_metrics(
    address: Option<SocketAddr>,
) -> Result<Option<AbortOnDropHandle<()>>, MetricsError> {
    let Some(address) = address else { return Ok(None) };
    let serving = prometheus::start(address)?;
    Ok(Some(AbortOnDropHandle::new(tokio::spawn(serving))))
}

/// Says what the kernel cannot keep commands from.
pub(super) fn warn_of_confinement(herder: &Herder, tell: Tell) {
    herder.warnings().for_each(tell);
}

/// Says which tools of the work at hand the policy would refuse because nobody is there to ask.
pub(super) fn warn_of_silent_tools(herder: &Herder, offered: &Option<BTreeSet<Arc<str>>>, tell: Tell) {
    let services = herder.supervisor.services();
    let names: Vec<&str> = match offered {
        Some(names) => names.iter().map(|name| &**name).collect(),
        None => services.toolbox.names().map(|name| &**name).collect(),
    };
    let silent = herder.tools_for_want_of_a_person(names);
    if !silent.is_empty() {
        let policy = services.policy.name();
        tell(&format!(
            "policy {policy} asks a person about {}, and nobody is there to ask: the model is not offered it; \
             with --park people answer later, --policy trusted allows it",
            silent.join(", ")
        ));
    }
}

/// Lends what tasks are completed with and checked by.
pub(super) fn with_rules<T>(config: &Config, work: impl FnOnce(Rules<'_>) -> T) -> Result<T, ToolsError> {
    let toolbox = toolbox(config, None)?;
    let model = |name: &str| config.check_model(name);
    let tool = |name: &str| {
        let names = || toolbox.names().map(|name| &**name).collect::<Vec<_>>().join(", ");
        toolbox
            .get(name)
            .map(drop)
            .ok_or_else(|| format!("there is no tool {name:?}; want some of {}", names()))
    };
    Ok(work(Rules { defaults: &config.defaults, model: &model, tool: &tool }))
}
