//! Whether a call may run: rules as data, read once, asked for every call.
//!
//! The first rule that fits decides; what no rule fits is denied. A call that touches several paths is judged for each
//! of them, a command line for each command in it, and the strictest verdict holds: what is allowed never carries
//! along what is forbidden. A command that cannot be decided is never allowed past a rule that may be about it. Does
//! not know where a policy comes from, what a tool is, or whether anybody is there to be asked.

use std::fmt;

use globset::Candidate;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use serde_json::json;

use super::{call::EffectClass, event::Grant};

pub mod command;
mod pattern;
mod rule;
mod ruling;
#[cfg(test)]
mod tests;

use command::Part;
use pattern::Fit;
use rule::Rule;
pub use ruling::Judged;
use ruling::Ruling;

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
    /// The command line that it runs, if it runs one.
    pub command: Option<&'a str>,
    /// Its arguments, as far as they are known.
    pub arguments: Option<&'a Value>,
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

    /// A policy that allows what a person has approved beforehand, and nothing else. Its pattern is one of commands if the
    /// tool runs any, and else one of paths.
    ///
    /// # Errors
    /// What is wrong with its pattern.
    pub fn granting(grant: &Grant, runs_commands: bool) -> Result<Self, String> {
        let about = if runs_commands { "command" } else { "path" };
        let rule = json!({ "tools": [grant.tool], about: [grant.pattern], "decision": "allow" });
        serde_json::from_value(json!({ "name": "granted", "rule": [rule] }))
            .map_err(|error| error.to_string())
    }

    /// Says whether a call may run, and which rule says so, in words that fit behind "denied:".
    pub fn judge(&self, subject: &Subject<'_>) -> (Verdict, String) {
        let parts = self.parts(subject);
        let ruling = self.strictest(subject, &parts);
        (ruling.verdict(), ruling.in_words(&self.name))
    }

    /// Says whether a call may run. A tool that walks a tree asks this for each file before it reads it.
    pub fn verdict(&self, subject: &Subject<'_>) -> Verdict {
        self.strictest(subject, &self.parts(subject)).verdict()
    }

    /// Judges each command of a line by itself; those that only run another one are left out unless a rule names them.
    pub fn judge_parts(&self, subject: &Subject<'_>) -> Vec<Judged> {
        let parts = subject.command.map(command::split).unwrap_or_default();
        let judged = parts.iter().filter_map(|part| {
            let ruling = self.strictest_of(subject, Some(part))?;
            Some(Judged {
                part: part.clone(),
                verdict: ruling.verdict(),
                rule: ruling.number(),
                reason: ruling.in_words(&self.name),
            })
        });
        judged.collect()
    }

    /// The best verdict that a call of this tool could get, whatever it touches.
    pub fn could_allow(&self, tool: &str, effect: EffectClass) -> Verdict {
        let mut best = Verdict::Deny;
        for rule in self.rules.iter().filter(|rule| rule.covers(tool, effect)) {
            best = best.min(rule.decision);
            if rule.fits_any_call() {
                break;
            }
        }
        best
    }

    /// Whether a call of this tool could be left to people: by a rule, or because one may or may not fit.
    pub fn could_ask(&self, tool: &str, effect: EffectClass) -> bool {
        let first = self.rules.iter().find(|rule| rule.covers(tool, effect));
        first.is_some_and(|rule| rule.decision == Verdict::Ask || !rule.fits_any_call())
    }

    /// The tools that rules name beside the `known` ones: each is a rule that would silently do nothing.
    pub fn unknown_tools(&self, known: &[&str]) -> Vec<UnknownTool> {
        let named = self.rules.iter().zip(1..).flat_map(|(rule, number)| {
            rule.named_tools().iter().map(move |tool| UnknownTool { rule: number, tool: tool.clone() })
        });
        named.filter(|unknown| !known.contains(&unknown.tool.as_str())).collect()
    }

    /// The first rule that would silently do nothing, as it names both commands and paths; the first of all is 1.
    pub fn fits_nothing(&self) -> Option<usize> {
        self.rules.iter().zip(1..).find(|(rule, _)| rule.never_fits()).map(|(_, number)| number)
    }

    /// The commands to judge. A line is not split for rules none of which looks at them.
    fn parts(&self, subject: &Subject<'_>) -> Vec<Part> {
        let looks = |rule: &Rule| rule.names_commands() && rule.covers(subject.tool, subject.effect);
        match subject.command {
            Some(line) if self.rules.iter().any(looks) => command::split(line),
            Some(_) | None => Vec::new(),
        }
    }

    fn strictest<'a>(&'a self, subject: &Subject<'_>, parts: &'a [Part]) -> Ruling<'a> {
        let rulings = parts.iter().filter_map(|part| self.strictest_of(subject, Some(part)));
        let strictest = rulings.reduce(Ruling::stricter);
        strictest.or_else(|| self.strictest_of(subject, None)).unwrap_or_default()
    }

    fn strictest_of<'a>(&'a self, subject: &Subject<'_>, part: Option<&'a Part>) -> Option<Ruling<'a>> {
        if subject.paths.is_empty() {
            return self.first(subject, part, None);
        }
        let rulings =
            subject.paths.iter().filter_map(|path| self.first(subject, part, Some(&Candidate::new(path))));
        rulings.reduce(Ruling::stricter)
    }

    /// What the first rule that fits says. Nothing, of a part that only runs another, if no rule is against it.
    fn first<'a>(
        &'a self,
        subject: &Subject<'_>,
        part: Option<&'a Part>,
        path: Option<&Candidate<'_>>,
    ) -> Option<Ruling<'a>> {
        let is_through = part.is_some_and(Part::is_through);
        let mut ruling = Ruling { part, ..Ruling::default() };
        for (number, rule) in (1..).zip(&self.rules) {
            let covers = rule.covers(subject.tool, subject.effect) && rule.fits_path(path);
            if !covers || !rule.fits_arguments(subject.arguments) {
                continue;
            }
            match rule.fits_part(part) {
                Fit::No => {}
                Fit::Yes if is_through && !rule.names_commands() => {}
                Fit::Maybe => ruling.doubt = ruling.doubt.or(Some((number, rule))),
                Fit::Yes => {
                    ruling.by = Some((number, rule));
                    break;
                }
            }
        }
        (!is_through || ruling.by.is_some() || ruling.doubt.is_some()).then_some(ruling)
    }
}
