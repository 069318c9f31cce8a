//! Counts and times with few digits, for people.

use std::time::Duration;

/// A count with three digits at most.
#[expect(clippy::cast_precision_loss, reason = "shown to people, with few digits")]
pub(in crate::cli) fn short(count: u64) -> String {
    let (value, unit) = match count {
        0..1_000 => return count.to_string(),
        1_000..1_000_000 => (count as f64 / 1e3, "k"),
        1_000_000..1_000_000_000 => (count as f64 / 1e6, "M"),
        _ => (count as f64 / 1e9, "G"),
    };
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// How long something took that is over: the same, and to the tenth of a second where that matters.
pub(in crate::cli) fn took(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..9_950 => format!("{}.{}s", (millis + 50) / 1_000, (millis + 50) % 1_000 / 100),
        _ => clock(time),
    }
}

/// A length of time as `59s`, `1m05s` or `2h03m`.
pub(in crate::cli) fn clock(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_are_short() {
        assert_eq!(
            [0, 999, 1_000, 9_949, 12_345, 999_999, 2_500_000].map(short),
            ["0", "999", "1.0k", "9.9k", "12k", "1000k", "2.5M"]
        );
        assert_eq!(
            [0, 59, 65, 3_600, 7_380].map(|seconds| clock(Duration::from_secs(seconds))),
            ["0s", "59s", "1m05s", "1h00m", "2h03m"]
        );
    }
}
