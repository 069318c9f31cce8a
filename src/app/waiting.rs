//! What runs without a slot wait for, in words.

use crate::{
    clock::time_of_day,
    domain::{event::ParkReason, time::Timestamp},
};

/// How a run stands that people have decided about, and that has no slot yet.
pub const ANSWERED: &str = "answered: goes on once it has a slot";

/// What is waited for, and until when if that is known: `rate limit until 14:05 UTC`.
pub fn words(reason: ParkReason, until: Option<Timestamp>, now: Timestamp) -> String {
    let what = match reason {
        ParkReason::Paused => "paused",
        ParkReason::RateLimit => "rate limit",
        ParkReason::Quota => "account used up",
        ParkReason::Auth => "key refused",
        ParkReason::Budget => "budget",
        ParkReason::Approval => "approval",
    };
    let until = until.filter(|until| *until > now);
    until.map_or_else(|| what.to_owned(), |until| format!("{what} until {}", time_of_day(until, now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::from_rfc3339;

    #[test]
    fn a_time_is_told_to_the_minute_with_the_day_where_it_is_another_and_not_once_it_has_passed() {
        let at = |text| from_rfc3339(text).expect("a time");
        let now = at("2026-11-30T13:00:00Z");
        let told = [
            (ParkReason::Quota, Some(at("2026-11-30T14:04:01.5Z"))),
            (ParkReason::RateLimit, Some(at("2026-12-01T00:00:00Z"))),
            (ParkReason::RateLimit, Some(at("2026-11-30T12:59:00Z"))),
            (ParkReason::Auth, None),
        ]
        .map(|(reason, until)| words(reason, until, now));
        assert_eq!(
            told,
            [
                "account used up until 14:05 UTC",
                "rate limit until 2026-12-01 00:00 UTC",
                "rate limit",
                "key refused"
            ]
        );
    }
}
