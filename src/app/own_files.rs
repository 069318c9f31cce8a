//! Which files are herder's own, so that the tools of its runs leave them alone, and whether commands could change them.

use std::path::{Path, PathBuf};

use super::{
    approvals,
    herder::People,
    state::{State, default_folder},
};
use crate::{
    config::Config,
    domain::policy::{Policy, Verdict},
    tool::{
        isolate::WORK,
        launcher::FileBounds,
        toolbox::Toolbox,
        workspace::hidden::{Hidden, real},
    },
};

/// What the tools on files neither see nor change, beside a state and the results that are derived from it.
pub(super) fn hidden(config: &Config, state: &State) -> Hidden {
    let folders = folders(state);
    let shelters = folders.iter().map(PathBuf::as_path).chain([state.aside()]);
    Hidden::new(paths(config, state), shelters.map(|folder| folder.join(WORK)))
}

/// The same as it was configured: files and folders, which may not be there.
pub(super) fn paths(config: &Config, state: &State) -> Vec<PathBuf> {
    let results = state.results.as_deref().map(around).unwrap_or_default();
    let more = [config.daemon.token_file.clone(), approvals::runtime_folder()];
    folders(state).into_iter().chain(results).chain(more.into_iter().flatten()).collect()
}

fn folders(state: &State) -> Vec<PathBuf> {
    state.folder.iter().map(|folder| folder.path().to_owned()).chain(default_folder()).collect()
}

/// The file of results, what it is while it is made, and what it is derived from by itself.
fn around(results: &Path) -> Vec<PathBuf> {
    let beside = |ending: &str| {
        let mut name = results.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    vec![results.to_owned(), beside(".new"), beside(".state")]
}

/// A state folder in which commands that nobody is asked about could put on record what people are asked about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: commands that the policy allows may write to {}, and so answer for the people who are asked; keep the state \
     elsewhere with --state DIR, or have every command asked about",
    .state.display(), .root.display()
)]
pub struct Exposed {
    state: PathBuf,
    root: PathBuf,
}

/// Whether answers of people can be relied upon in this folder: no command that runs unasked can write to it. Where
/// commands are kept from nothing there is no better place, and whoever configured that knows.
///
/// # Errors
/// The first of the folders that such commands may write to and that holds it.
pub(super) fn check_exposed<'a>(
    config: &Config,
    (toolbox, policy): (&Toolbox, &Policy),
    people: People,
    state: &Path,
    workspaces: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Exposed> {
    let commands = config.command_tools.keys().map(String::as_str).chain(["bash"]);
    let mut commands = commands.filter_map(|name| Some((name, toolbox.get(name)?.effect())));
    let unasked = commands.any(|(name, effect)| policy.could_allow(name, effect) == Verdict::Allow);
    let bounds = super::confinement::bounds(config);
    match (people, bounds.files) {
        (People::Asked, FileBounds::Workspace) if unasked => {}
        (People::Asked | People::Absent, FileBounds::Open | FileBounds::Workspace | FileBounds::Refused) => {
            return Ok(());
        }
    }
    let Some(state) = real(state) else { return Ok(()) };
    let of_workspaces = workspaces.into_iter().filter_map(real);
    let mut roots = of_workspaces.chain(bounds.write_roots.iter().filter_map(|root| real(root)));
    match roots.find(|root| state.starts_with(root)) {
        Some(root) => Err(Exposed { state, root }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn checked(text: &str, people: People, state: &str, workspaces: &[&str]) -> Option<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.toml");
        std::fs::write(&file, text).expect("written");
        let sources = config::Sources { file: Some(file), ..config::Sources::default() };
        let (config, _) = config::load(&sources).expect("a configuration");
        let toolbox = crate::app::tools::toolbox(&config, None).expect("tools");
        let policy = {
            let names: Vec<&str> = toolbox.names().map(|name| &**name).collect();
            config::policies::load_for(&config.defaults.policy, &names).expect("a policy")
        };
        let workspaces = workspaces.iter().map(Path::new);
        let checked = check_exposed(&config, (&toolbox, &policy), people, Path::new(state), workspaces);
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn answers_are_not_relied_upon_where_commands_that_run_unasked_could_give_them() {
        if !crate::app::confinement::bounds(&config::load(&config::Sources::default()).expect("defaults").0)
            .confine_files()
        {
            return;
        }
        const TRUSTED: &str = "[defaults]\npolicy = \"trusted\"";
        let asked = |text: &str, state: &str| checked(text, People::Asked, state, &["/proc", "/none/ws"]);
        let told = asked(TRUSTED, "/none/ws/out.state").expect("exposed");
        assert!(told.starts_with("/none/ws/out.state: ") && told.contains("--state DIR"), "{told}");
        assert_eq!(asked(TRUSTED, "/none/out.state"), None);
        let roots = format!("{TRUSTED}\n[confine]\nwrite_roots = [\"/none\"]");
        assert!(asked(&roots, "/none/out.state").is_some());
        assert_eq!(checked(TRUSTED, People::Absent, "/none/ws/out.state", &["/none/ws"]), None);
        for policy in ["careful", "read-only"] {
            let text = format!("[defaults]\npolicy = \"{policy}\"");
            assert_eq!(asked(&text, "/none/ws/out.state"), None, "{policy}");
        }
    }
}
