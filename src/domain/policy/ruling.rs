//! What came of judging one thing, and the words for it.

use super::{Verdict, command::Part, rule::Rule};

/// A command of a line, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The command.
    pub part: Part,
    /// What policy says of it.
    pub verdict: Verdict,
    /// The rule that says so; the first is 1. Nothing, if none fits.
    pub rule: Option<usize>,
    /// The same in words.
    pub reason: String,
}

/// The rule that decided, if one did.
#[derive(Clone, Copy, Default)]
pub(super) struct Ruling<'a> {
    pub(super) by: Option<(usize, &'a Rule)>,
    /// The first rule before it that may be about this, which is known only when it runs.
    pub(super) doubt: Option<(usize, &'a Rule)>,
    /// The command that is judged, if it is one.
    pub(super) part: Option<&'a Part>,
}

impl<'a> Ruling<'a> {
    pub(super) fn verdict(self) -> Verdict {
        if self.doubt.is_some() { self.decided().max(Verdict::Ask) } else { self.decided() }
    }

    /// The verdict, doubts aside.
    fn decided(self) -> Verdict {
        match self.by {
            Some((_, rule)) => rule.decision,
            // What it runs is judged by itself.
            None if self.part.is_some_and(Part::is_through) => Verdict::Allow,
            None => Verdict::Deny,
        }
    }

    pub(super) fn number(self) -> Option<usize> {
        self.decisive().map(|(number, _)| number)
    }

    /// Of equally strict ones the first, so that the words follow the call's own order.
    pub(super) fn stricter(self, next: Self) -> Self {
        if next.verdict() > self.verdict() { next } else { self }
    }

    /// The rule that the verdict comes from.
    fn decisive(self) -> Option<(usize, &'a Rule)> {
        if self.decided() == Verdict::Allow { self.doubt.or(self.by) } else { self.by }
    }

    pub(super) fn in_words(self, policy: &str) -> String {
        let Some(part) = self.part else { return self.of_a_call(policy) };
        let remark = part.remark().map(|remark| format!(" ({remark})")).unwrap_or_default();
        let command = format!("{}{remark}", part.shown());
        let reason =
            |rule: &Rule| rule.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        match (self.decisive(), self.by) {
            (None, _) => format!("no rule of policy {policy} allows {command}"),
            (Some((number, rule)), Some((by, _))) if number == by => {
                let says = match rule.decision {
                    Verdict::Allow => "allows",
                    Verdict::Ask => "asks about",
                    Verdict::Deny => "denies",
                };
                format!("rule {number} of policy {policy} {says} {command}{}", reason(rule))
            }
            (Some((number, _)), _) => {
                format!("rule {number} of policy {policy} may be about {command}")
            }
        }
    }

    fn of_a_call(self, policy: &str) -> String {
        match self.by {
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
