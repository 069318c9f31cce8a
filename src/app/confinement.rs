//! What the kernel keeps commands from, as the configuration wishes and the kernel can, and what a person is told of a
//! difference.

use super::{herder::People, own_files};
use crate::{
    config::{self, Config, ConfineFiles},
    domain::policy::{Policy, Verdict},
    tool::{
        launcher::{Bounds, FileBounds},
        process::confine::{self, Files, Network, Support},
        toolbox::Toolbox,
    },
};

/// How far commands reach.
pub fn bounds(config: &Config) -> Bounds {
    let files = match (config.confine.files, confine::support().files) {
        (ConfineFiles::Off, _) | (ConfineFiles::On, Files::Absent) => FileBounds::Open,
        (ConfineFiles::Require, Files::Absent) => FileBounds::Refused,
        (ConfineFiles::On | ConfineFiles::Require, _) => FileBounds::Workspace,
    };
    Bounds { files, write_roots: config.write_roots(), network: network(config.confine.network) }
}

pub(super) const fn network(network: config::Network) -> Network {
    match network {
        config::Network::Allow => Network::Allow,
        config::Network::Deny => Network::Deny,
    }
}

/// What a person should know before commands run, a line each; nothing if no command could.
pub(super) fn warnings(
    config: &Config,
    (toolbox, policy): (&Toolbox, &Policy),
    people: People,
) -> Vec<String> {
    let commands = config.command_tools.keys().map(String::as_str).chain(["bash"]);
    let mut commands = commands.filter_map(|name| Some((name, toolbox.get(name)?.effect())));
    let could_run = commands.any(|(name, effect)| policy.could_allow(name, effect) != Verdict::Deny);
    if !could_run {
        return Vec::new();
    }
    let asked = people == People::Asked && own_files::asks_about_some(config, toolbox, policy);
    let answers = asked.then(|| unguarded(bounds(config).files)).flatten();
    let gaps = gaps(config, confine::support());
    gaps.into_iter().chain(answers.map(str::to_owned)).chain(missing_roots(config)).collect()
}

/// What people should know who are asked about some calls, while commands run unasked that reach so far.
const fn unguarded(files: FileBounds) -> Option<&'static str> {
    match files {
        FileBounds::Open => Some(
            "commands that nobody is asked about are not confined: they could answer approvals themselves",
        ),
        FileBounds::Workspace | FileBounds::Refused => None,
    }
}

/// Which folders that commands are to write to are not there.
fn missing_roots(config: &Config) -> Option<String> {
    if config.confine.files == ConfineFiles::Off {
        return None;
    }
    let roots = config.write_roots();
    let missing: Vec<_> =
        roots.iter().filter(|root| !root.exists()).map(|root| root.display().to_string()).collect();
    (!missing.is_empty()).then(|| {
        let (them, there) = if missing.len() == 1 { ("it does", "it is") } else { ("they do", "they are") };
        format!(
            "confine.write_roots: {}: {them} not exist, so commands cannot write there until {there} made",
            missing.join(", ")
        )
    })
}

/// What the kernel cannot do of what is wished.
fn gaps(config: &Config, support: Support) -> Option<String> {
    let files = match (config.confine.files, support.files) {
        (ConfineFiles::Off, _) | (ConfineFiles::On | ConfineFiles::Require, Files::All) => None,
        (ConfineFiles::On, Files::Absent) => {
            Some("commands are not confined to their workspace: this kernel has no Landlock".to_owned())
        }
        (ConfineFiles::Require, Files::Absent) => Some(
            "no command is run: confine.files is \"require\", and this kernel has no Landlock".to_owned(),
        ),
        (ConfineFiles::On | ConfineFiles::Require, files) => Some(format!(
            "commands are confined to their workspace, but can {} elsewhere: this kernel's Landlock is too old",
            files.gaps().join(" and ")
        )),
    };
    let deny = config.command_tools.values().map(|tool| tool.network).chain([Some(config.confine.network)]);
    let without_network = deny.flatten().any(|network| network == config::Network::Deny);
    let network = (without_network && !support.network)
        .then(|| "commands without network are not run: this kernel has no seccomp filters".to_owned());
    match (files, network) {
        (Some(files), Some(network)) => Some(format!("{files}; {network}")),
        (files, network) => files.or(network),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(text: &str) -> Config {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.toml");
        std::fs::write(&file, text).expect("written");
        let sources = config::Sources { file: Some(file), ..config::Sources::default() };
        config::load(&sources).expect("a configuration").0
    }

    #[test]
    fn whoever_is_asked_is_told_of_unasked_commands_that_could_answer() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = folder.path().join("rules.toml");
        let some = "name = \"some\"\n[[rule]]\ncommand = [\"echo\"]\ndecision = \"allow\"\n[[rule]]\ndecision = \"ask\"\n";
        std::fs::write(&rules, some).expect("written");
        let config = configured("[confine]\nfiles = \"off\"");
        let toolbox = crate::app::tools::toolbox(&config, None).expect("tools");
        let told = |policy: &str, people| {
            let policy = config::policies::load(policy).expect("a policy");
            let answer = |line: &String| line.contains("could answer approvals themselves");
            warnings(&config, (&toolbox, &policy), people).iter().any(answer)
        };
        let some = rules.to_str().expect("UTF-8");
        assert!(told(some, People::Asked));
        assert!(!told(some, People::Absent));
        for policy in ["careful", "edit-workspace", "trusted"] {
            assert!(!told(policy, People::Asked), "{policy}");
        }
        assert_eq!((unguarded(FileBounds::Workspace), unguarded(FileBounds::Refused)), (None, None));
    }

    fn told(text: &str, files: Files, network: bool) -> Option<String> {
        gaps(&configured(text), Support { files, network })
    }

    #[test]
    fn what_the_kernel_cannot_do_is_told_by_name() {
        assert_eq!(told("", Files::All, true), None);
        assert_eq!(told("[confine]\nfiles = \"off\"", Files::Absent, false), None);
        for (files, expected) in [
            (Files::Absent, "commands are not confined to their workspace: this kernel has no Landlock"),
            (
                Files::Truncation,
                "commands are confined to their workspace, but can drive devices and signal other processes elsewhere: \
                 this kernel's Landlock is too old",
            ),
        ] {
            assert_eq!(told("", files, true).as_deref(), Some(expected));
        }
        assert_eq!(
            told("[confine]\nfiles = \"require\"\nnetwork = \"deny\"", Files::Absent, false).as_deref(),
            Some(
                "no command is run: confine.files is \"require\", and this kernel has no Landlock; commands without network \
                 are not run: this kernel has no seccomp filters"
            )
        );
    }
}
