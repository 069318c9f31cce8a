//! Whether a call may run: rules as data, read once, asked for every call.
//!
//! The first rule that fits decides; what no rule fits is denied. A call that touches several paths is judged for each
//! of them, and the strictest verdict holds: one allowed path never carries a forbidden one along. Does not know where
//! a policy comes from, what a tool is, or whether anybody is there to be asked.

use std::fmt;

use globset::Candidate;
use serde::{Deserialize, Serialize};

use serde_json::json;

use super::{call::EffectClass, event::Grant};

mod rule;
#[cfg(test)]
mod tests;

use rule::Rule;

/// What policy says of a call, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It runs.
    Allow,
    /// A person decides; where none can, it does not run.
    Ask,
    /// It does not run.
    Deny,
}

impl Verdict {
    /// The name used in policies, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }

    /// What a model is told of a call that this keeps from running where nobody can be asked; `rule` says so.
    pub fn denial(self, rule: &str) -> Option<String> {
        match self {
            Self::Allow => None,
            Self::Ask => Some(format!("denied: {rule}, and nobody is there to ask")),
            Self::Deny => Some(format!("denied: {rule}")),
        }
    }
}

/// A list of rules with a name, in the shape in which a file holds it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    name: String,
    #[serde(default, rename = "rule")]
    rules: Vec<Rule>,
}

/// The call that is judged.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// What the call does to the world at most.
    pub effect: EffectClass,
    /// What it touches, relative to the workspace; `""` is the workspace itself.
    pub paths: &'a [&'a str],
}

/// A tool that a rule names and nobody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTool {
    /// The rule's place in the policy; the first is 1.
    pub rule: usize,
    /// The name.
    pub tool: String,
}

impl fmt::Display for UnknownTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} names the tool {:?}, which does not exist", self.rule, self.tool)
    }
}

impl Policy {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A policy that allows what a person has approved beforehand, and nothing else.
    ///
    /// # Errors
    /// What is wrong with its pattern.
    pub fn granting(grant: &Grant) -> Result<Self, String> {
        let rule = json!({ "tools": [grant.tool], "path": [grant.pattern], "decision": "allow" });
        serde_json::from_value(json!({ "name": "granted", "rule": [rule] }))
            .map_err(|error| error.to_string())
    }

    /// Says whether a call may run, and which rule says so, in words that fit behind "denied:".
    pub fn judge(&self, subject: &Subject<'_>) -> (Verdict, String) {
        let ruling = self.strictest(subject);
        (ruling.verdict(), ruling.in_words(&self.name))
    }

    /// Says whether a call may run. A tool that walks a tree asks this for each file before it reads it.
    pub fn verdict(&self, subject: &Subject<'_>) -> Verdict {
        self.strictest(subject).verdict()
    }

    /// The best verdict that a call of this tool could get, whatever it touches.
    pub fn could_allow(&self, tool: &str, effect: EffectClass) -> Verdict {
        let mut best = Verdict::Deny;
        for rule in self.rules.iter().filter(|rule| rule.covers(tool, effect)) {
            best = best.min(rule.decision);
            if rule.fits_any_path() {
                break;
            }
        }
        best
    }

    /// The tools that rules name beside the `known` ones: each is a rule that would silently do nothing.
    pub fn unknown_tools(&self, known: &[&str]) -> Vec<UnknownTool> {
        let named = self.rules.iter().zip(1..).flat_map(|(rule, number)| {
            rule.named_tools().iter().map(move |tool| UnknownTool { rule: number, tool: tool.clone() })
        });
        named.filter(|unknown| !known.contains(&unknown.tool.as_str())).collect()
    }

    fn strictest(&self, subject: &Subject<'_>) -> Ruling<'_> {
        let rulings = subject.paths.iter().map(|path| self.first(subject, Some(&Candidate::new(path))));
        // Of equally strict ones the first path's, so that the words follow the call's own order.
        let strictest =
            rulings.reduce(|held, next| if next.verdict() > held.verdict() { next } else { held });
        strictest.unwrap_or_else(|| self.first(subject, None))
    }

    fn first(&self, subject: &Subject<'_>, path: Option<&Candidate<'_>>) -> Ruling<'_> {
        let fits =
            |(_, rule): &(usize, &Rule)| rule.covers(subject.tool, subject.effect) && rule.fits_path(path);
        Ruling((1..).zip(&self.rules).find(fits))
    }
}

/// The rule that decided, with its number, if one did.
struct Ruling<'a>(Option<(usize, &'a Rule)>);

impl Ruling<'_> {
    fn verdict(&self) -> Verdict {
        self.0.map_or(Verdict::Deny, |(_, rule)| rule.decision)
    }

    fn in_words(&self, policy: &str) -> String {
        match self.0 {
            None => format!("no rule of policy {policy} allows it"),
            Some((number, Rule { reason: Some(reason), .. })) => {
                format!("rule {number} of policy {policy}: {reason}")
            }
            Some((number, rule)) => {
                format!("rule {number} of policy {policy} says {}", rule.decision.as_str())
            }
        }
    }
}
