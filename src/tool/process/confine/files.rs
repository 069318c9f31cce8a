//! Keeps writing to some files and folders, with Landlock.
//!
//! What the kernel's Landlock is too old for is left out; [`strongest`] tells beforehand what that is. Without rules for
//! renames between folders it would break too much, so such a kernel counts as one without.

use std::{
    io,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};
use rustix::io::Errno;

use super::{SHARED_FOLDERS, system_error};

/// Devices that programs write to without harm. Terminals are not among them: a command could write to the one that a
/// person answers herder at.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];

/// How much of the confinement to files the kernel has; what has more comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Files {
    Absent,
    /// Opening, making, removing, linking and renaming (Linux 5.19).
    Paths,
    /// `truncate` too (6.2).
    Truncation,
    /// What drives devices too (6.10).
    Devices,
    /// Signals to other processes and abstract sockets too (6.12).
    All,
}

impl Files {
    /// What commands that are confined can still do.
    pub const fn gaps(self) -> &'static [&'static str] {
        const GAPS: &[&str] = &["truncate files", "drive devices", "signal other processes"];
        match self {
            Self::Absent | Self::Paths => GAPS,
            Self::Truncation => GAPS.split_at(1).1,
            Self::Devices => GAPS.split_at(2).1,
            Self::All => &[],
        }
    }
}

const GENERATIONS: [(Files, ABI); 4] =
    [(Files::All, ABI::V6), (Files::Devices, ABI::V5), (Files::Truncation, ABI::V3), (Files::Paths, ABI::V2)];

pub(super) fn strongest() -> Files {
    strongest_ruleset().map_or(Files::Absent, |(files, ..)| files)
}

pub(super) fn apply(write: &[PathBuf]) -> io::Result<()> {
    let (_, abi, ruleset) = strongest_ruleset().ok_or(Errno::NOSYS)?;
    let rules =
        write.iter().filter_map(|path| rule(path, abi).transpose()).collect::<io::Result<Vec<_>>>()?;
    let status = restrict(ruleset, abi, rules).map_err(|error| system_error(&error))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => Err(Errno::NOSYS.into()),
    }
}

/// A set of rules that so far allows nothing, of the newest kind that the kernel has.
fn strongest_ruleset() -> Option<(Files, ABI, RulesetCreated)> {
    GENERATIONS.into_iter().find_map(|(files, abi)| Some((files, abi, empty_ruleset(abi).ok()?)))
}

fn empty_ruleset(abi: ABI) -> Result<RulesetCreated, RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_write(abi))?;
    let scopes = Scope::from_all(abi);
    if scopes.is_empty() { ruleset.create() } else { ruleset.scope(scopes)?.create() }
}

fn restrict(
    ruleset: RulesetCreated,
    abi: ABI,
    rules: Vec<PathBeneath<PathFd>>,
) -> Result<RestrictionStatus, RulesetError> {
    ruleset
        .add_rules(path_beneath_rules(DEVICES, in_file(abi)))?
        .add_rules(path_beneath_rules(SHARED_FOLDERS, in_folder(abi)))?
        .add_rules(rules.into_iter().map(Ok::<_, RulesetError>))?
        .restrict_self()
}

/// None for what is not there: nobody may write to it then.
fn rule(path: &Path, abi: ABI) -> io::Result<Option<PathBeneath<PathFd>>> {
    let access = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(facts) if facts.is_dir() => in_folder(abi),
        Ok(_) => in_file(abi),
    };
    Ok(Some(PathBeneath::new(PathFd::new(path).map_err(|error| system_error(&error))?, access)))
}

fn in_file(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_write(abi) & AccessFs::from_file(abi)
}

/// Whoever makes devices writes anywhere, through them.
fn in_folder(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_write(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_the_kernel_the_fewer_the_gaps() {
        assert_eq!(Files::Paths.gaps(), ["truncate files", "drive devices", "signal other processes"]);
        assert_eq!(Files::Truncation.gaps(), ["drive devices", "signal other processes"]);
        assert_eq!(Files::Devices.gaps(), ["signal other processes"]);
        assert!(Files::All.gaps().is_empty());
        assert!(GENERATIONS.is_sorted_by(|newer, older| newer.0 > older.0));
    }

    #[test]
    fn no_folder_is_one_to_make_devices_in() {
        for (_, abi) in GENERATIONS {
            let access = in_folder(abi);
            assert!(!access.contains(AccessFs::MakeChar) && !access.contains(AccessFs::MakeBlock));
            assert!(access.contains(AccessFs::WriteFile | AccessFs::Refer));
        }
    }
}
