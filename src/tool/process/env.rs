//! Decides what a tool process sees of the environment.
//!
//! Pure, and by permission: a variable passes because it is named here, in the configuration or by the caller. So a
//! key that herder was started with never reaches a command, whatever it is called.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
};

/// A complete environment, ordered by name.
pub type Environment = Vec<(OsString, OsString)>;

const PASSED: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"];
const PASSED_PREFIX: &str = "LC_";

/// For programs that would otherwise paint, page or ask, with nobody there to look or answer.
const FIXED: &[(&str, &str)] =
    &[("TERM", "dumb"), ("PAGER", "cat"), ("GIT_PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0")];

const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Builds the environment of a command: what passes of `own`, then what `pass` names, then `extra`; later wins.
pub fn environment(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    pass: &[String],
    extra: impl IntoIterator<Item = (OsString, OsString)>,
) -> Environment {
    let mut built = BTreeMap::from([("PATH".into(), DEFAULT_PATH.into())]);
    let mut named = Vec::new();
    for (name, value) in own {
        if pass.iter().any(|passed| name == **passed) {
            named.push((name, value));
        } else if is_passed(&name) {
            built.insert(name, value);
        }
    }
    built.extend(FIXED.iter().map(|(name, value)| (name.into(), value.into())));
    built.extend(named);
    built.extend(extra);
    built.into_iter().collect()
}

fn is_passed(name: &OsStr) -> bool {
    PASSED.iter().any(|passed| name == *passed)
        || name.as_encoded_bytes().starts_with(PASSED_PREFIX.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_named_does_not_pass() {
        let own =
            pairs(&[("OPENAI_API_KEY", "sk-1"), ("GITHUB_TOKEN", "g"), ("LC_ALL", "C"), ("HOME", "/h")]);
        assert_eq!(
            environment(own, &[], []),
            pairs(&[
                ("GIT_PAGER", "cat"),
                ("GIT_TERMINAL_PROMPT", "0"),
                ("HOME", "/h"),
                ("LC_ALL", "C"),
                ("PAGER", "cat"),
                ("PATH", DEFAULT_PATH),
                ("TERM", "dumb"),
            ])
        );
    }

    #[test]
    fn a_named_variable_passes_and_beats_what_is_fixed() {
        let own = pairs(&[("CARGO_HOME", "/c"), ("CARGO_TOKEN", "t"), ("TERM", "xterm")]);
        let built = environment(own, &["CARGO_HOME".to_owned(), "TERM".to_owned()], []);
        assert_eq!(value(&built, "CARGO_HOME"), Some("/c"));
        assert_eq!(value(&built, "TERM"), Some("xterm"));
        assert_eq!(value(&built, "CARGO_TOKEN"), None);
    }

    #[test]
    fn the_callers_own_pairs_win() {
        let built = environment(
            pairs(&[("TMPDIR", "/tmp")]),
            &[],
            pairs(&[("TMPDIR", "/runs/1"), ("HERDER_RUN_ID", "1")]),
        );
        assert_eq!(value(&built, "TMPDIR"), Some("/runs/1"));
        assert_eq!(value(&built, "HERDER_RUN_ID"), Some("1"));
    }

    fn pairs(list: &[(&str, &str)]) -> Environment {
        list.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn value<'a>(built: &'a Environment, wanted: &str) -> Option<&'a str> {
        built.iter().find(|(name, _)| name == wanted).and_then(|(_, value)| value.to_str())
    }
}
