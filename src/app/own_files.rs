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
        process::confine,
        toolbox::Toolbox,
        workspace::hidden::{Hidden, real},
    },
};

/// What the tools on files neither see nor change, beside a state and the results that are derived from it.
pub(super) fn hidden(config: &Config, state: &State) -> Hidden {
    let folders = folders(state);
    let shelters = folders.iter().map(PathBuf::as_path).chain([state.aside()]);
    // The same command may be given again, and reads these again.
    let read_again = config.files().chain(state.input.clone());
    Hidden::new(paths(config, state), shelters.map(|folder| folder.join(WORK))).fixing(read_again)
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

/// Files in which commands that nobody is asked about could put on record what people are asked about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: commands that the policy allows may write to {}, and so answer for the people who are asked; {}, or have every \
     command asked about",
    .kept.display(), .root.display(), .instead
)]
pub struct Exposed {
    kept: PathBuf,
    root: PathBuf,
    instead: &'static str,
}

/// The files by which answers of people are relied upon, in so far as no command that runs unasked can write to them: the state in
/// this folder and the place where answers are left. Workspaces are to lie apart from them. There are none if nobody is asked
/// about anything, or about every command; and where commands are kept from nothing there is no better place, of which a
/// person is told at the start.
///
/// # Errors
/// Whatever the workspace, such commands may write to it.
pub(super) fn relied_upon(
    config: &Config,
    (toolbox, policy): (&Toolbox, &Policy),
    people: People,
    state: &Path,
) -> Result<Hidden, Exposed> {
    let bounds = super::confinement::bounds(config);
    match (people, bounds.files) {
        (People::Asked, FileBounds::Workspace) if asks_about_some(config, toolbox, policy) => {}
        (People::Asked | People::Absent, FileBounds::Open | FileBounds::Workspace | FileBounds::Refused) => {
            return Ok(Hidden::default());
        }
    }
    let places = [state.to_owned()].into_iter().chain(approvals::runtime_folder());
    let kept = Hidden::new(places, [state.join("work")]);
    let mut roots =
        bounds.write_roots.iter().map(PathBuf::as_path).chain(confine::SHARED_FOLDERS.map(Path::new));
    roots.try_for_each(|root| check(&kept, state, root))?;
    Ok(kept)
}

/// Whether people are asked about some calls, while there are commands that run unasked.
pub(super) fn asks_about_some(config: &Config, toolbox: &Toolbox, policy: &Policy) -> bool {
    let commands = config.command_tools.keys().map(String::as_str).chain(["bash"]);
    let mut commands = commands.filter_map(|name| Some((name, toolbox.get(name)?.effect())));
    let unasked = commands.any(|(name, effect)| policy.could_allow(name, effect) == Verdict::Allow);
    let mut tools = toolbox.names().filter_map(|name| Some((name, toolbox.get(name)?.effect())));
    unasked && tools.any(|(name, effect)| policy.could_ask(name, effect))
}

/// Whether a folder that such commands may write to lies apart from what is relied upon.
///
/// # Errors
/// It does not.
pub(super) fn check(kept: &Hidden, state: &Path, root: &Path) -> Result<(), Exposed> {
    let Some(root) = real(root) else { return Ok(()) };
    let Some(kept) = kept.around(&root) else { return Ok(()) };
    let is_state = real(state).is_some_and(|state| state == kept);
    let instead = match is_state {
        true => "keep the state elsewhere with --state DIR",
        false => "set XDG_RUNTIME_DIR to a folder elsewhere",
    };
    Err(Exposed { kept: kept.to_owned(), root, instead })
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
        let state = Path::new(state);
        let checked = relied_upon(&config, (&toolbox, &policy), people, state).and_then(|kept| {
            workspaces.iter().try_for_each(|workspace| check(&kept, state, Path::new(workspace)))
        });
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn answers_are_not_relied_upon_where_commands_that_run_unasked_could_give_them() {
        if !crate::app::confinement::bounds(&config::load(&config::Sources::default()).expect("defaults").0)
            .confine_files()
        {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let rules = folder.path().join("rules.toml");
        let text = "name = \"some\"\n\n[[rule]]\ncommand = [\"echo\"]\ndecision = \"allow\"\n\n[[rule]]\ndecision = \"ask\"\n";
        std::fs::write(&rules, text).expect("written");
        let some = &format!("[defaults]\npolicy = {:?}", rules.display().to_string());
        let asked = |text: &str, state: &str| checked(text, People::Asked, state, &["/proc", "/none/ws"]);
        let told = asked(some, "/none/ws/out.state").expect("exposed");
        assert!(told.starts_with("/none/ws/out.state: ") && told.contains("--state DIR"), "{told}");
        assert_eq!(asked(some, "/none/out.state"), None);
        assert!(asked(some, "/dev/shm/out.state").is_some());
        assert!(checked(some, People::Asked, "/none/st", &["/none/st/answers"]).is_some());
        assert_eq!(checked(some, People::Asked, "/none/st", &["/none/st/work/run"]), None);
        let roots = format!("{some}\n[confine]\nwrite_roots = [\"/none\"]");
        assert!(asked(&roots, "/none/out.state").is_some());
        assert_eq!(checked(some, People::Absent, "/none/ws/out.state", &["/none/ws"]), None);
        for policy in ["careful", "read-only", "trusted"] {
            let text = format!("[defaults]\npolicy = \"{policy}\"");
            assert_eq!(asked(&text, "/none/ws/out.state"), None, "{policy}");
        }
    }
}
