//! Tells by the time to the first token that a server is asked too much, where it does not say so itself.
//!
//! First tokens are taken in windows of many, so that one slow prompt proves nothing, and the mean of a window is
//! compared with the best there was. A server that queues what it cannot take yet answers the faster the less is asked
//! of it. So slowness is put to the test: if two cuts running do not help, then prompts have grown or another model is
//! asked, and what it takes now becomes the measure. The best is never just forgotten, or else a server that is always
//! kept too busy would seem to be a slow one. Memory is a handful of numbers.

use std::time::Duration;

use tokio::time::Instant;

/// First tokens in a window, at least. With more places a window is a round of them.
const WINDOW: u32 = 16;

/// So many times the best mean, and nothing more is tried.
const SLOW: u32 = 2;

/// So many times the best mean, and less is asked.
const TOO_SLOW: u32 = 3;

/// A mean that is less than this above the best is never slow.
const NOTICEABLE: Duration = Duration::from_secs(1);

/// How long a server may be slow before it is put to the test, for the limit not to stand still for ever.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Cuts that must have been in vain before they are taken to be.
const VAIN: u32 = 2;

/// What the second of two cuts by a fifth brings the mean down to, if the load was the reason, with some to spare for
/// chance. In percent of the worst, which may only have been seen after the first.
const HELPED: u32 = 90;

/// How the server keeps up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    #[default]
    Even,
    /// Ask no more than now.
    Slow,
    /// Ask less.
    TooSlow,
}

#[derive(Debug, Default)]
pub(super) struct Pace {
    verdict: Verdict,
    sum: Duration,
    count: u32,
    best: Option<Duration>,
    slow_since: Option<Instant>,
    /// Cuts since the server became too slow, and the worst mean since then.
    cuts: Option<(u32, Duration)>,
}

impl Pace {
    pub(super) fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Takes in one time to the first token; with the last of a window, says what the window shows.
    pub(super) fn first_token(&mut self, after: Duration, places: u32, now: Instant) -> Option<Verdict> {
        self.sum = self.sum.saturating_add(after);
        self.count += 1;
        if self.count < places.max(WINDOW) {
            return None;
        }
        let mean = self.sum / self.count;
        self.start_window();
        self.verdict = self.judge(mean, now);
        Some(self.verdict)
    }

    /// The limit was cut for what was found here.
    pub(super) fn cut(&mut self) {
        if let Some((cuts, _)) = &mut self.cuts {
            *cuts += 1;
        }
    }

    /// What came before the limit was cut shows nothing any more.
    pub(super) fn start_window(&mut self) {
        self.sum = Duration::ZERO;
        self.count = 0;
    }

    fn judge(&mut self, mean: Duration, now: Instant) -> Verdict {
        let best = self.best.map_or(mean, |best| best.min(mean));
        self.best = Some(best);
        let beyond = |times| mean > best.saturating_mul(times) && mean - best > NOTICEABLE;
        if !beyond(SLOW) {
            (self.cuts, self.slow_since) = (None, None);
            return Verdict::Even;
        }
        let since = *self.slow_since.get_or_insert(now);
        if !beyond(TOO_SLOW) && now.saturating_duration_since(since) < PATIENCE {
            self.cuts = None;
            return Verdict::Slow;
        }
        let (cuts, worst) = self.cuts.get_or_insert((0, mean));
        *worst = mean.max(*worst);
        if *cuts >= VAIN && mean.saturating_mul(100) > worst.saturating_mul(HELPED) {
            (self.best, self.cuts, self.slow_since) = (Some(mean), None, None);
            return Verdict::Even;
        }
        Verdict::TooSlow
    }
}
