//! Whether a failed request is sent again, and when.

use std::time::Duration;

use super::outcome::FaultClass;

/// Tries that a turn's request has, the first included; a rate limit uses none up.
pub const TRIES: u32 = 5;

/// How long a run waits in its slot to ask again. What is to come later it waits for without one, and that uses up no try.
pub const PATIENCE: Duration = Duration::from_secs(60);

const BASE: Duration = Duration::from_millis(500);
const CEILING: Duration = Duration::from_secs(30);

/// The ceiling for a rate limit, which the account's places and rates heed too: a longer wait would only leave them idle.
const RATE_LIMIT_CEILING: Duration = Duration::from_secs(8);

/// Whether a failure uses up one of a turn's tries. The others are no fault of the request, or end the turn at once.
pub const fn uses_a_try(class: FaultClass) -> bool {
    match class {
        FaultClass::Overloaded | FaultClass::Transient | FaultClass::Timeout | FaultClass::Stall => true,
        FaultClass::RateLimit
        | FaultClass::Auth
        | FaultClass::Quota
        | FaultClass::Invalid
        | FaultClass::ContextOverflow
        | FaultClass::Cancelled => false,
    }
}

/// Whether another model may do what this one did not.
pub const fn another_may_do(class: FaultClass) -> bool {
    match class {
        FaultClass::RateLimit
        | FaultClass::Overloaded
        | FaultClass::Transient
        | FaultClass::Timeout
        | FaultClass::Stall
        | FaultClass::Auth
        | FaultClass::Quota
        | FaultClass::ContextOverflow => true,
        FaultClass::Invalid | FaultClass::Cancelled => false,
    }
}

/// How long to wait before the next request, or `None` to give up.
///
/// `tries` counts the failures of the turn that used up a try, this one included; `attempt` counts all its failures.
/// The wait is drawn by `jitter` (`0.0..1.0`) from nothing to a ceiling that doubles with each failure. What the
/// server asks for is honoured exactly, and never shortened.
pub fn delay(
    class: FaultClass,
    tries: u32,
    attempt: u32,
    retry_after: Option<Duration>,
    jitter: f64,
) -> Option<Duration> {
    let again = match class {
        FaultClass::RateLimit => true,
        FaultClass::Overloaded | FaultClass::Transient | FaultClass::Timeout | FaultClass::Stall => {
            tries < TRIES
        }
        FaultClass::Auth
        | FaultClass::Quota
        | FaultClass::Invalid
        | FaultClass::ContextOverflow
        | FaultClass::Cancelled => false,
    };
    let ceiling = if class == FaultClass::RateLimit { RATE_LIMIT_CEILING } else { CEILING };
    again.then(|| retry_after.unwrap_or_else(|| backoff(attempt, ceiling, jitter)))
}

fn backoff(attempt: u32, ceiling: Duration, jitter: f64) -> Duration {
    let ceiling = BASE.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(ceiling);
    // A rate limit retries for as long as the run may: never in a hot loop.
    ceiling.mul_f64(jitter.clamp(0.0, 1.0)).max(Duration::from_millis(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifth_failure_of_a_turn_is_the_last() {
        let again = |tries| delay(FaultClass::Transient, tries, tries, None, 1.0);
        assert_eq!(again(1), Some(Duration::from_millis(500)));
        assert_eq!(again(4), Some(Duration::from_secs(4)));
        assert_eq!(again(5), None);
    }

    #[test]
    fn what_the_server_asks_for_is_honoured_exactly() {
        let asked = Some(Duration::from_millis(2_345));
        assert_eq!(delay(FaultClass::RateLimit, 0, 1, asked, 0.3), asked);
    }

    #[test]
    fn a_rate_limit_is_asked_again_for_ever_and_never_at_once() {
        assert_eq!(delay(FaultClass::RateLimit, 0, 1_000, None, 0.0), Some(Duration::from_millis(10)));
        assert_eq!(delay(FaultClass::RateLimit, 0, 1_000, None, 1.0), Some(RATE_LIMIT_CEILING));
    }

    #[test]
    fn what_will_never_be_accepted_is_not_sent_again() {
        for class in [FaultClass::Auth, FaultClass::Quota, FaultClass::Invalid, FaultClass::ContextOverflow] {
            assert_eq!(delay(class, 1, 1, Some(Duration::from_secs(1)), 0.5), None, "{class}");
        }
    }
}
