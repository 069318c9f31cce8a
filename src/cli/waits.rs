//! What accounts and runs wait for, in words.

use std::path::Path;

use super::render::counted;
use crate::{
    actor::supervisor::{Shut, Wait},
    app::waiting,
    clock::{from_rfc3339, time_of_day},
    daemon::wire::{BatchWait, BudgetKind, BudgetView, Latch, LatchReason},
    domain::{event::ParkReason, time::Timestamp},
    model::governor,
};

/// Why an account is shut and until when, as `account used up until 14:05 UTC`.
pub(super) fn latched(latch: &Latch, now: Timestamp) -> String {
    let reason = match latch.reason {
        LatchReason::RateLimit => ParkReason::RateLimit,
        LatchReason::Quota => ParkReason::Quota,
        LatchReason::Auth => ParkReason::Auth,
    };
    waiting::words(reason, latch.until.as_deref().and_then(from_rfc3339), now)
}

/// A time that is waited for, if there is one.
fn until(at: Option<&str>, now: Timestamp) -> String {
    at.and_then(from_rfc3339).map_or_else(String::new, |at| format!(" until {}", time_of_day(at, now)))
}

/// Runs that wait, and what for.
pub(super) fn waiting(wait: &Wait, now: Timestamp) -> (usize, String) {
    (wait.runs, waiting::words(wait.reason, wait.until, now))
}

/// The same of a batch of the daemon's.
pub(super) fn waiting_there(wait: &BatchWait, now: Timestamp) -> (usize, String) {
    let until = wait.until.as_deref().and_then(from_rfc3339);
    (usize::try_from(wait.runs).unwrap_or(usize::MAX), waiting::words(wait.reason.into(), until, now))
}

/// How many tasks wait for people to decide, and what is to be done about it.
pub(super) fn undecided(tasks: usize, folder: &Path) -> String {
    let wait = if tasks == 1 { "waits" } else { "wait" };
    format!(
        "{} {wait} for approval: `herder approvals --state {}` shows what for; once it is answered, run the same command again",
        counted(tasks, "task"),
        folder.display()
    )
}

/// Why nothing goes on until a person opens an account.
pub(super) fn shut(Shut { account, latched }: &Shut) -> String {
    let (what, remedy) = match latched.reason {
        governor::LatchReason::Quota => ("is used up", "when there is more"),
        governor::LatchReason::Auth => ("refuses the key", "with another key"),
        governor::LatchReason::RateLimit => ("wants to be left alone", "later"),
    };
    format!("account {account} {what} ({}); go on {remedy}", latched.said)
}

/// What was spent of a budget, as `$0.42 of $1.00`.
pub(super) fn spent(spent_usd: f64, cap_usd: Option<f64>) -> String {
    cap_usd.map_or_else(|| format!("${spent_usd:.2}"), |cap| format!("${spent_usd:.2} of ${cap:.2}"))
}

/// The same with whose budget it is, and what is reserved.
pub(super) fn budget(budget: &BudgetView, now: Timestamp) -> String {
    let whose = match (budget.kind, &budget.user) {
        (BudgetKind::User, Some(user)) => format!("{user}: "),
        (BudgetKind::User, None) | (BudgetKind::Process, _) => String::new(),
    };
    let reserved = budget.reserved_usd;
    let reserved = if reserved > 0.0 { format!(", ${reserved:.2} reserved") } else { String::new() };
    let spent = spent(budget.spent_usd, budget.cap_usd);
    format!("{whose}{spent}{reserved}{}", until(budget.until.as_deref(), now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_says_whose_it_is_and_what_is_left_to_come() {
        let now = from_rfc3339("2026-11-30T13:00:00Z").expect("a time");
        let process = BudgetView {
            kind: BudgetKind::Process,
            user: None,
            until: None,
            spent_usd: 0.42,
            reserved_usd: 0.0,
            cap_usd: Some(1.0),
        };
        assert_eq!(budget(&process, now), "$0.42 of $1.00");
        let user = BudgetView {
            kind: BudgetKind::User,
            user: Some("ann".to_owned()),
            until: Some("2026-12-01T00:00:00Z".to_owned()),
            reserved_usd: 0.1,
            cap_usd: None,
            ..process
        };
        assert_eq!(budget(&user, now), "ann: $0.42, $0.10 reserved until 2026-12-01 00:00 UTC");
    }
}
