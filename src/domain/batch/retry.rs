//! Whether a task that is not done gets another attempt by itself, and when.

use std::time::Duration;

use crate::domain::outcome::{Breakage, FaultClass, Outcome};

const BASE: Duration = Duration::from_secs(1);
const CEILING: Duration = Duration::from_secs(60);

/// Whether another attempt can end otherwise. What somebody wanted, paid for or has to mend is left alone.
pub const fn is_worth_a_retry(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Done | Outcome::Cancelled | Outcome::Budget(_) | Outcome::Blocked(_) => false,
        Outcome::ProviderError(class) => match class {
            FaultClass::RateLimit
            | FaultClass::Overloaded
            | FaultClass::Transient
            | FaultClass::Timeout
            | FaultClass::Stall => true,
            FaultClass::Auth
            | FaultClass::Quota
            | FaultClass::Invalid
            | FaultClass::ContextOverflow
            | FaultClass::Cancelled => false,
        },
        Outcome::Failed(breakage) => match breakage {
            Breakage::Panic | Breakage::RestartLimit | Breakage::Store | Breakage::Stuck => true,
            Breakage::Setup => false,
        },
    }
}

/// How long a task waits before its `number`th retry: a second, doubled each time up to a minute, shortened by up to a
/// half by `jitter` (`0.0..1.0`).
pub fn retry_delay(number: u32, jitter: f64) -> Duration {
    let ceiling = BASE.saturating_mul(1 << number.saturating_sub(1).min(6)).min(CEILING);
    ceiling.mul_f64(0.5_f64.mul_add(-jitter.clamp(0.0, 1.0), 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::Limit;

    #[test]
    fn a_passing_fault_is_worth_a_retry_and_a_standing_one_is_not() {
        assert!(is_worth_a_retry(Outcome::ProviderError(FaultClass::Stall)));
        assert!(is_worth_a_retry(Outcome::Failed(Breakage::Panic)));
        for standing in [
            Outcome::Cancelled,
            Outcome::Budget(Limit::Turns),
            Outcome::ProviderError(FaultClass::Auth),
            Outcome::ProviderError(FaultClass::Invalid),
        ] {
            assert!(!is_worth_a_retry(standing), "{standing}");
        }
    }

    #[test]
    fn the_wait_doubles_up_to_a_minute() {
        let seconds: Vec<u64> = (1..9).map(|number| retry_delay(number, 0.0).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(retry_delay(1, 1.0), Duration::from_millis(500));
    }
}
