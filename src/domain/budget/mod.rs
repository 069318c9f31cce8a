//! Budgets: how much may be spent, by whom, and how a request is kept within it.
//!
//! A request reserves the most that it can cost in every budget it falls under before it is sent, and settles at what it
//! did cost after. So many requests at once pass no cap that one by one they would not. Knows nothing of time but what
//! it is told, nor of who waits for an answer.

use std::sync::Arc;

use serde::Deserialize;

use super::{id::BatchId, task::TaskSpec, time::Timestamp, usage::NanoUsd};

mod fit;
mod ledger;

pub use fit::{Ask, MIN_TOKENS, input_tokens};
pub use ledger::{Answer, Ledger, Reservation, Standing, Sum, Wish};

/// Whatever money is counted for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// All of herder, from its start on.
    Process,
    /// A batch, from its first start on.
    Batch(BatchId),
    /// A user, in one period.
    User {
        /// The user's name.
        user: Arc<str>,
        /// How long the period is.
        per: Period,
        /// When it began.
        since: Timestamp,
    },
}

impl Node {
    /// What kind it is, as metrics and messages show it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Batch(_) => "batch",
            Self::User { .. } => "user",
        }
    }

    /// When money counts anew, if it ever does.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Process | Self::Batch(_) => None,
            Self::User { per, since, .. } => per.end(*since),
        }
    }
}

/// A time for which money is counted, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From the first of a month to that of the next.
    Month,
    /// For ever.
    Total,
}

const DAY: i64 = 24 * 60 * 60 * 1_000_000;

impl Period {
    /// When the period began that `now` lies in.
    pub fn start(self, now: Timestamp) -> Timestamp {
        let day = now.as_micros().div_euclid(DAY);
        let first = match self {
            Self::Day => day,
            Self::Month => day + 1 - day_of_month(day),
            Self::Total => 0,
        };
        Timestamp::from_micros(first * DAY)
    }

    fn end(self, since: Timestamp) -> Option<Timestamp> {
        let after = |days| Timestamp::from_micros(since.as_micros() + days * DAY);
        match self {
            Self::Day => Some(after(1)),
            // Always in the next month.
            Self::Month => Some(self.start(after(31 + 1))),
            Self::Total => None,
        }
    }
}

/// Which day of its month a day is that is counted from 1970-01-01; the Gregorian calendar, from March on.
const fn day_of_month(day: i64) -> i64 {
    let day_of_era = (day + 719_468).rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    day_of_year - (153 * month + 2) / 5 + 1
}

/// What users may spend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserBudget {
    /// Whose budget it is; absent: each user's who has none of this period by name.
    pub user: Option<Arc<str>>,
    /// For how long it is.
    pub per: Period,
    /// How much it is.
    pub cap: NanoUsd,
}

impl UserBudget {
    /// Those that hold for a user, with the period that is running.
    pub fn of(budgets: &[Self], user: &Arc<str>, now: Timestamp) -> Vec<(Node, NanoUsd)> {
        let by_name = |per| budgets.iter().any(|one| one.per == per && one.user.as_ref() == Some(user));
        let holds = |one: &&Self| match &one.user {
            Some(named) => named == user,
            None => !by_name(one.per),
        };
        let node = |per: Period| Node::User { user: user.clone(), per, since: per.start(now) };
        budgets.iter().filter(holds).map(|one| (node(one.per), one.cap)).collect()
    }
}

/// What counts the money of a task's requests, beside budgets of users.
pub fn nodes_of(spec: &TaskSpec) -> Vec<Node> {
    std::iter::once(Node::Process).chain(spec.batch.map(Node::Batch)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Midnight of that day.
    fn day(day: i64) -> Timestamp {
        Timestamp::from_micros(day * DAY)
    }

    #[test]
    fn periods_begin_at_midnight_and_on_the_first() {
        // Days from 1970-01-01 on: 2024-02-29, 2024-03-01, 2024-12-31, 2025-01-01, and the first of their months.
        let table = [
            (19_782, 19_754, 19_783),
            (19_783, 19_783, 19_814),
            (20_088, 20_058, 20_089),
            (20_089, 20_089, 20_120),
        ];
        for (today, first, next) in table {
            let noon = Timestamp::from_micros(today * DAY + DAY / 2);
            assert_eq!(Period::Day.start(noon), day(today));
            assert_eq!(Period::Month.start(noon), day(first), "{today}");
            assert_eq!(Period::Day.end(day(today)), Some(day(today + 1)));
            assert_eq!(Period::Month.end(day(first)), Some(day(next)), "{today}");
        }
        assert_eq!((Period::Total.start(day(9)), Period::Total.end(day(0))), (day(0), None));
    }

    #[test]
    fn a_budget_by_name_stands_in_for_that_of_everybody_of_the_same_period() {
        let budget = |user: Option<&str>, per, usd| UserBudget {
            user: user.map(Arc::from),
            per,
            cap: NanoUsd::from_usd(usd),
        };
        let budgets = [
            budget(None, Period::Day, 1.0),
            budget(None, Period::Total, 9.0),
            budget(Some("alice"), Period::Day, 5.0),
        ];
        let caps = |user: &str| {
            let of = UserBudget::of(&budgets, &user.into(), day(3));
            of.into_iter().map(|(_, cap)| cap.usd()).collect::<Vec<_>>()
        };
        assert_eq!((caps("alice"), caps("bob")), (vec![9.0, 5.0], vec![1.0, 9.0]));
    }
}
