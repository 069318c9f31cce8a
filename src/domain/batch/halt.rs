//! When a batch gives up: after how many tasks that are not done, and how.

use std::{fmt, str::FromStr};

/// When and how a batch stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halt {
    pub how: HaltHow,
    pub after: HaltAfter,
}

/// What becomes of the runs that are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaltHow {
    /// They go on to their end; nothing new starts.
    Soon,
    /// They are interrupted, and go on when the batch is run again.
    Now,
}

/// How many tasks may end otherwise than done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaltAfter {
    Tasks(usize),
    PercentOfAll(u8),
}

impl Halt {
    /// Whether `failed` of `all` tasks are enough to stop.
    pub const fn is_reached(self, failed: usize, all: usize) -> bool {
        match self.after {
            HaltAfter::Tasks(count) => failed >= count,
            HaltAfter::PercentOfAll(percent) => {
                failed > 0 && failed.saturating_mul(100) >= all.saturating_mul(percent as usize)
            }
        }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.how {
            HaltHow::Soon => "soon",
            HaltHow::Now => "now",
        };
        match self.after {
            HaltAfter::Tasks(count) => write!(f, "{how},fail={count}"),
            HaltAfter::PercentOfAll(percent) => write!(f, "{how},fail={percent}%"),
        }
    }
}

impl FromStr for Halt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let want =
            || format!("{text:?}: want soon,fail=N or now,fail=N, N a number of tasks or a share as 10%");
        let (how, after) = text.split_once(",fail=").ok_or_else(want)?;
        let how = match how {
            "soon" => HaltHow::Soon,
            "now" => HaltHow::Now,
            _ => return Err(want()),
        };
        let after = match after.strip_suffix('%') {
            Some(percent) => percent
                .parse()
                .ok()
                .filter(|percent| (1..=100).contains(percent))
                .map(HaltAfter::PercentOfAll),
            None => after.parse().ok().filter(|count| *count > 0).map(HaltAfter::Tasks),
        };
        after.map(|after| Self { how, after }).ok_or_else(want)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_and_a_share_are_read_and_anything_else_is_refused() {
        let now = Halt { how: HaltHow::Now, after: HaltAfter::Tasks(3) };
        assert_eq!("now,fail=3".parse(), Ok(now));
        let soon = Halt { how: HaltHow::Soon, after: HaltAfter::PercentOfAll(10) };
        assert_eq!("soon,fail=10%".parse(), Ok(soon));
        assert_eq!([now, soon].map(|halt| halt.to_string()), ["now,fail=3", "soon,fail=10%"]);
        for wrong in ["", "now", "later,fail=1", "now,fail=0", "soon,fail=101%", "now,fail=-1", "now,done=1"]
        {
            assert!(wrong.parse::<Halt>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_is_of_all_tasks_and_never_reached_without_a_failure() {
        let share = Halt { how: HaltHow::Soon, after: HaltAfter::PercentOfAll(10) };
        assert!(!share.is_reached(1, 20) && share.is_reached(2, 20));
        assert!(!share.is_reached(0, 0));
        let count = Halt { how: HaltHow::Soon, after: HaltAfter::Tasks(2) };
        assert!(!count.is_reached(1, 2) && count.is_reached(2, 20));
    }
}
