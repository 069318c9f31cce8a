//! Whether a run whose actor died goes on, and when.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::Timestamp;

/// Whether a run whose actor died goes on from its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// It ends as `failed: panic`.
    Never,
    /// It goes on if its actor failed.
    #[default]
    OnFailure,
    /// It goes on however its actor ended, as long as the run has not.
    Always,
}

/// How an actor ended before its run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It panicked, or its handler returned an error.
    Failed,
    /// It was stopped or killed.
    Stopped,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Start it again after this long.
    After(Duration),
    /// Policy does not restart it.
    Forbidden,
    /// It died too often.
    TooMany,
}

/// Restarts without progress that a run is allowed within [`WINDOW`].
pub const INTENSITY: usize = 5;
/// See [`INTENSITY`].
pub const WINDOW: Duration = Duration::from_secs(60);

const BASE: Duration = Duration::from_secs(1);
const CEILING: Duration = Duration::from_secs(60);

/// Decides about a run whose actor ended. `idle` are its restarts with nothing recorded since, oldest first;
/// `jitter` (`0.0..1.0`) shortens the wait by up to a half.
pub fn decide(policy: RestartPolicy, exit: Exit, idle: &[Timestamp], now: Timestamp, jitter: f64) -> Restart {
    match (policy, exit) {
        (RestartPolicy::Never, _) | (RestartPolicy::OnFailure, Exit::Stopped) => return Restart::Forbidden,
        (RestartPolicy::OnFailure, Exit::Failed) | (RestartPolicy::Always, _) => {}
    }
    if idle.iter().filter(|at| now.since(**at) < WINDOW).count() >= INTENSITY {
        return Restart::TooMany;
    }
    let ceiling = BASE.saturating_mul(1 << idle.len().min(6)).min(CEILING);
    Restart::After(ceiling.mul_f64(0.5_f64.mul_add(-jitter.clamp(0.0, 1.0), 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn idle(seconds_ago: &[i64]) -> Vec<Timestamp> {
        seconds_ago.iter().map(|ago| Timestamp::from_micros(NOW.as_micros() - ago * 1_000_000)).collect()
    }

    #[test]
    fn the_wait_doubles_from_a_second_to_a_minute() {
        let waits: Vec<_> = (0..8_usize)
            .map(|count| decide(RestartPolicy::OnFailure, Exit::Failed, &idle(&vec![100; count]), NOW, 0.0))
            .collect();
        let seconds = |s| Restart::After(Duration::from_secs(s));
        assert_eq!(
            waits,
            [
                seconds(1),
                seconds(2),
                seconds(4),
                seconds(8),
                seconds(16),
                seconds(32),
                seconds(60),
                seconds(60)
            ]
        );
    }

    #[test]
    fn the_sixth_death_without_progress_in_a_minute_is_the_last() {
        let restart = |ago: &[i64]| decide(RestartPolicy::Always, Exit::Stopped, &idle(ago), NOW, 1.0);
        assert_eq!(restart(&[59, 40, 30, 20, 10]), Restart::TooMany);
        assert_eq!(restart(&[60, 40, 30, 20, 10]), Restart::After(Duration::from_secs(16)));
    }

    #[test]
    fn policy_decides_who_is_restarted_at_all() {
        let restart = |policy, exit| decide(policy, exit, &[], NOW, 0.0);
        assert_eq!(restart(RestartPolicy::Never, Exit::Failed), Restart::Forbidden);
        assert_eq!(restart(RestartPolicy::OnFailure, Exit::Stopped), Restart::Forbidden);
        assert_eq!(restart(RestartPolicy::OnFailure, Exit::Failed), Restart::After(BASE));
        assert_eq!(restart(RestartPolicy::Always, Exit::Stopped), Restart::After(BASE));
    }
}
