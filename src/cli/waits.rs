//! What accounts and runs wait for, in words.

use crate::{
    clock::{from_rfc3339, time_of_day},
    daemon::wire::{BudgetKind, BudgetView, Latch, LatchReason},
    domain::time::Timestamp,
};

/// Why an account is shut and until when, as `used up until 14:05 UTC`.
pub(super) fn latched(latch: &Latch, now: Timestamp) -> String {
    let why = match latch.reason {
        LatchReason::RateLimit => "rate limit",
        LatchReason::Quota => "used up",
        LatchReason::Auth => "key refused",
    };
    format!("{why}{}", until(latch.until.as_deref(), now))
}

/// A time that is waited for, if there is one.
fn until(at: Option<&str>, now: Timestamp) -> String {
    at.and_then(from_rfc3339).map_or_else(String::new, |at| format!(" until {}", time_of_day(at, now)))
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
    fn a_latch_is_told_to_the_minute_with_the_day_where_it_is_another() {
        let now = from_rfc3339("2026-11-30T13:00:00Z").expect("a time");
        let latch = |reason, until: Option<&str>| Latch {
            account: "h/v1".to_owned(),
            reason,
            until: until.map(str::to_owned),
            said: "no".to_owned(),
        };
        let told = [
            latch(LatchReason::Quota, Some("2026-11-30T14:04:01.5Z")),
            latch(LatchReason::RateLimit, Some("2026-12-01T00:00:00Z")),
            latch(LatchReason::Auth, None),
        ]
        .map(|latch| latched(&latch, now));
        assert_eq!(told, ["used up until 14:05 UTC", "rate limit until 2026-12-01 00:00 UTC", "key refused"]);
    }

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
