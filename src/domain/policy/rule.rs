//! One rule of a policy: which calls it is about, and what it says of them.
//!
//! A rule that could never fit, since its list is empty or its pattern is no path inside a workspace, is refused when it
//! is read.

use std::collections::BTreeMap;

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Verdict,
    command::Part,
    pattern::{Commands, Fit, is_like},
};
use crate::domain::call::EffectClass;

/// See the module. What is absent fits every call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    tools: Option<Tools>,
    effect: Option<Effects>,
    path: Option<Paths>,
    command: Option<Commands>,
    redirections: Option<bool>,
    args: Option<ArgumentPatterns>,
    pub(super) decision: Verdict,
    pub(super) reason: Option<String>,
}

impl Rule {
    /// Whether the rule is about this tool with this effect, in some call. A command line reaches outside, always.
    pub(super) fn covers(&self, tool: &str, effect: EffectClass) -> bool {
        if self.command.is_some() && effect != EffectClass::Outside {
            return false;
        }
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

    /// Whether the rule is about these arguments.
    pub(super) fn fits_arguments(&self, arguments: Option<&Value>) -> bool {
        self.args
            .as_ref()
            .is_none_or(|patterns| arguments.is_some_and(|given| patterns.fit(given, self.decision)))
    }

    /// Whether the rule is about a part of a command line; a call without one is `None`.
    pub(super) fn fits_part(&self, part: Option<&Part>) -> Fit {
        match (&self.command, part) {
            (None, _) => Fit::Yes,
            (Some(_), None) => Fit::No,
            (Some(commands), Some(part)) => {
                commands.fit(part, self.decision, self.redirections == Some(true))
            }
        }
    }

    /// Whether no call fits: a command line touches the workspace as a whole, and no path within it.
    pub(super) fn never_fits(&self) -> bool {
        self.command.is_some() && self.path.as_ref().is_some_and(|paths| !paths.0.is_match(""))
    }

    pub(super) const fn names_commands(&self) -> bool {
        self.command.is_some()
    }

    /// Whether the rule is about every call of the tools that it covers.
    pub(super) const fn fits_any_call(&self) -> bool {
        self.path.is_none() && self.command.is_none() && self.args.is_none()
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

/// Patterns of arguments, by name. Each must be there and fit one of its patterns; of a list, every item where the rule
/// allows, and any where it does not.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "BTreeMap<String, Vec<String>>")]
struct ArgumentPatterns(BTreeMap<String, Vec<String>>);

impl TryFrom<BTreeMap<String, Vec<String>>> for ArgumentPatterns {
    type Error = String;

    fn try_from(patterns: BTreeMap<String, Vec<String>>) -> Result<Self, Self::Error> {
        match patterns.iter().find(|(_, patterns)| patterns.is_empty()) {
            Some((name, _)) => {
                Err(format!("the empty list of {name:?} fits nothing; [\"*\"] fits any value"))
            }
            None => Ok(Self(patterns)),
        }
    }
}

impl ArgumentPatterns {
    fn fit(&self, arguments: &Value, decision: Verdict) -> bool {
        self.0.iter().all(|(name, patterns)| {
            let fits = |value: &Value| {
                let text = match value {
                    Value::String(text) => text.clone(),
                    Value::Number(_) | Value::Bool(_) => value.to_string(),
                    Value::Null | Value::Array(_) | Value::Object(_) => return false,
                };
                patterns.iter().any(|pattern| is_like(pattern, &text))
            };
            match (arguments.get(name), decision) {
                (None, _) => false,
                (Some(Value::Array(items)), Verdict::Allow) => !items.is_empty() && items.iter().all(fits),
                (Some(Value::Array(items)), Verdict::Ask | Verdict::Deny) => items.iter().any(fits),
                (Some(value), _) => fits(value),
            }
        })
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
