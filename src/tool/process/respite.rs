//! How long processes may take to end by themselves.
//!
//! Pure: whoever waits for them looks, this counts the looks. Time counts only as far as they could have made use of it: while one
//! of them waits for the processor or the disk and gets nothing, as happens on a busy machine, none goes by; up to a limit. So what sleeps
//! on or keeps computing has [`SPAN`], and what has not had its turn yet has more. Knows nothing of signals.

use std::time::{Duration, Instant};

use super::descendants::Process;

/// What they have on a machine that has nothing else to do.
const SPAN: Duration = Duration::from_millis(200);
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// When it is over however busy the machine is.
const LIMIT: Duration = Duration::from_secs(10);

/// What is left of the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Respite {
    left: Duration,
    next_look: Instant,
    limit: Instant,
    /// What they had used by the last look.
    cpu_ticks: Option<u64>,
}

impl Respite {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: SPAN, next_look: now + LOOK_EVERY, limit: now + LIMIT, cpu_ticks: None }
    }

    pub(super) const fn next_look(&self) -> Instant {
        self.next_look
    }

    /// What is left of it after a look that has found these. Nothing, if it is over.
    #[must_use]
    pub(super) fn after(self, found: &[Process], now: Instant) -> Option<Self> {
        let cpu_ticks = found.iter().map(|process| process.cpu_ticks).sum();
        let has_advanced = self.cpu_ticks.is_some_and(|before| cpu_ticks > before);
        let is_held_up = !has_advanced && found.iter().any(|process| process.busy);
        // However late the look is: whoever looks was held up as well.
        let left = if is_held_up { self.left } else { self.left.saturating_sub(LOOK_EVERY) };
        (!left.is_zero() && now < self.limit).then_some(Self {
            left,
            next_look: now + LOOK_EVERY,
            cpu_ticks: Some(cpu_ticks),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a look, by its number: what one process does.
    struct Look {
        busy: bool,
        cpu_ticks: u64,
    }

    #[test]
    fn what_sleeps_on_has_the_span() {
        assert_eq!(lasts(|_| Look { busy: false, cpu_ticks: 3 }), SPAN);
    }

    #[test]
    fn what_keeps_computing_has_hardly_more() {
        assert_eq!(lasts(|number| Look { busy: true, cpu_ticks: number }), SPAN + LOOK_EVERY);
    }

    #[test]
    fn what_waits_for_its_turn_still_has_the_whole_span_when_that_has_come() {
        let late = lasts(|number| Look { busy: number < 100, cpu_ticks: 0 });
        assert_eq!(late, LOOK_EVERY * 99 + SPAN);
    }

    #[test]
    fn what_never_gets_anything_has_no_more_than_the_limit() {
        assert_eq!(lasts(|_| Look { busy: true, cpu_ticks: 0 }), LIMIT);
    }

    #[test]
    fn a_look_that_comes_late_counts_as_one() {
        let now = Instant::now();
        assert!(Respite::new(now).after(&[], now + SPAN * 5).is_some());
    }

    fn lasts(look: impl Fn(u64) -> Look) -> Duration {
        let begun = Instant::now();
        let (mut respite, mut number) = (Some(Respite::new(begun)), 0);
        let mut now = begun;
        let own = Process::look_up(std::process::id().cast_signed()).unwrap();
        while let Some(left) = respite {
            (now, number) = (left.next_look(), number + 1);
            let Look { busy, cpu_ticks } = look(number);
            let found = Process { busy, cpu_ticks, ..own };
            respite = left.after(&[found], now);
        }
        now - begun
    }
}
