//! Calls of git that run what its settings say: an alias stands for any command, and many a setting names a program.

use super::Word;

/// Git's own commands that run nothing but git, as long as no setting is changed. An alias cannot take their names.
const OWN: [&str; 66] = [
    "add",
    "am",
    "annotate",
    "apply",
    "archive",
    "bisect",
    "blame",
    "branch",
    "bundle",
    "cat-file",
    "check-ignore",
    "checkout",
    "cherry",
    "cherry-pick",
    "clean",
    "clone",
    "commit",
    "commit-tree",
    "config",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "fetch",
    "for-each-ref",
    "format-patch",
    "fsck",
    "gc",
    "grep",
    "hash-object",
    "help",
    "init",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "merge",
    "merge-base",
    "mv",
    "name-rev",
    "notes",
    "pull",
    "push",
    "range-diff",
    "rebase",
    "reflog",
    "remote",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "revert",
    "rm",
    "shortlog",
    "show",
    "show-ref",
    "sparse-checkout",
    "stash",
    "status",
    "submodule",
    "switch",
    "symbolic-ref",
    "tag",
    "worktree",
];
/// Options before the command that take the next word.
const VALUED: [&str; 4] = ["-C", "--git-dir", "--work-tree", "--namespace"];
/// Options before the command that take none.
const SWITCHES: [&str; 8] = [
    "--no-pager",
    "-P",
    "--bare",
    "--version",
    "--help",
    "--literal-pathspecs",
    "--no-optional-locks",
    "--no-replace-objects",
];
/// Beginnings of settings that name no program, in small letters.
const HARMLESS: [&str; 7] =
    ["user.name", "user.email", "color.", "advice.", "init.defaultbranch", "pull.rebase", "push.default"];
/// Words of `git config` behind which nothing is set.
const READING: [&str; 7] = ["get", "list", "-l", "--list", "--get", "--get-all", "--get-regexp"];

/// Whether a call runs what the settings say, or changes them so that a later one may.
pub(super) fn runs_what_is_set(arguments: &[Word]) -> bool {
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let Some(value) = word.value.as_deref() else { return true };
        if VALUED.contains(&value) {
            // What is not known may be several words.
            if rest.next().is_none_or(|word| word.value.is_none()) {
                return true;
            }
        } else if value.starts_with('-') {
            let has_value = value.split_once('=').is_some_and(|(name, _)| VALUED.contains(&name));
            if !has_value && !SWITCHES.contains(&value) {
                return true;
            }
        } else {
            let rest = rest.as_slice();
            return match value {
                "config" => may_set(rest),
                "clone" => rest.iter().any(|word| word.value.as_deref().is_none_or(is_short_upload)),
                own => !OWN.contains(&own),
            };
        }
    }
    false
}

/// Whether it may be `-u`, with which `clone` says what the other side runs.
fn is_short_upload(value: &str) -> bool {
    !value.starts_with("--") && value.strip_prefix('-').is_some_and(|letters| letters.contains('u'))
}

/// Whether `git config` may set what names a program.
fn may_set(arguments: &[Word]) -> bool {
    const SCOPES: [&str; 4] = ["--global", "--local", "--worktree", "set"];
    let mut words = arguments.iter().skip_while(|word| SCOPES.iter().any(|scope| word.is(scope)));
    let Some(value) = words.next().and_then(|word| word.value.as_deref()) else {
        return !arguments.is_empty();
    };
    let key = value.to_ascii_lowercase();
    // The name of a single setting without a value is asked for.
    let is_asked = words.next().is_none() && !value.starts_with('-');
    !(READING.contains(&value) || is_asked || HARMLESS.iter().any(|harmless| key.starts_with(harmless)))
}
