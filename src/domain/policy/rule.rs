//! One rule of a policy: which calls it is about, and what it says of them.
//!
//! A rule that could never fit, since its list is empty or its pattern is no path inside a workspace, is refused when it
//! is read.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use serde::Deserialize;

use super::Verdict;
use crate::domain::call::EffectClass;

/// See the module. What is absent fits every call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    tools: Option<Tools>,
    effect: Option<Effects>,
    path: Option<Paths>,
    pub(super) decision: Verdict,
    pub(super) reason: Option<String>,
}

impl Rule {
    /// Whether the rule is about this tool with this effect, on some path.
    pub(super) fn covers(&self, tool: &str, effect: EffectClass) -> bool {
        let names_tool = self.tools.as_ref().is_none_or(|tools| tools.0.iter().any(|name| name == tool));
        names_tool && self.effect.as_ref().is_none_or(|effects| effects.contains(effect))
    }

    /// Whether the rule is about this path; a call that touches nothing known is `None`.
    pub(super) fn fits_path(&self, path: Option<&Candidate<'_>>) -> bool {
        match (&self.path, path) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(paths), Some(path)) => paths.0.is_match_candidate(path),
        }
    }

    pub(super) const fn fits_any_path(&self) -> bool {
        self.path.is_none()
    }

    pub(super) fn named_tools(&self) -> &[String] {
        self.tools.as_ref().map_or(&[], |tools| &tools.0)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Vec<String>")]
struct Tools(Vec<String>);

impl TryFrom<Vec<String>> for Tools {
    type Error = &'static str;

    fn try_from(names: Vec<String>) -> Result<Self, Self::Error> {
        if names.is_empty() {
            return Err("an empty list fits no tool; leave it out to mean every tool");
        }
        Ok(Self(names))
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected \"read\", \"write\" or \"outside\", or a list of them")]
enum Effects {
    One(EffectClass),
    Many(Vec<EffectClass>),
}

impl Effects {
    fn contains(&self, effect: EffectClass) -> bool {
        match self {
            Self::One(one) => *one == effect,
            Self::Many(many) => many.contains(&effect),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Vec<String>")]
struct Paths(GlobSet);

impl TryFrom<Vec<String>> for Paths {
    type Error = String;

    fn try_from(patterns: Vec<String>) -> Result<Self, Self::Error> {
        if patterns.is_empty() {
            return Err("an empty list fits no path; leave it out to mean every path".to_owned());
        }
        let mut set = GlobSetBuilder::new();
        for pattern in &patterns {
            if let Some(right) = what_would_be_right(pattern) {
                return Err(format!("{pattern:?} never fits: {right}"));
            }
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            set.add(glob.map_err(|error| format!("{pattern:?} is no pattern: {}", error.kind()))?);
        }
        set.build().map(Self).map_err(|error| error.to_string())
    }
}

/// A pattern in one of these spellings is no path relative to a workspace.
fn what_would_be_right(pattern: &str) -> Option<&'static str> {
    if pattern.starts_with('/') || pattern.starts_with('~') {
        Some("paths are relative to the workspace")
    } else if pattern.split('/').any(|part| part == "." || part == "..") {
        Some("paths hold no \".\" or \"..\"")
    } else if pattern.ends_with('/') {
        Some("write \"folder/**\" for what is in a folder")
    } else {
        None
    }
}
