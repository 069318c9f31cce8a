//! The section `[retention]`: when a daemon takes old runs off the record.

use std::{str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de};

/// Which runs a daemon removes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Those that ended so long ago; without it none.
    pub older_than: Option<Age>,
    /// Whether those stay that did not end as done.
    pub keep_failed: bool,
}

/// A length of time as people say it: `30d`, `12h`, `90m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(pub Duration);

impl FromStr for Age {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const DAY: Duration = Duration::from_secs(24 * 3_600);
        let want = "want a length of time, as 30d, 12h or 1h30m";
        let days =
            |unit, days| text.strip_suffix(unit).and_then(|text| text.parse::<u32>().ok()?.checked_mul(days));
        if let Some(days) = days('d', 1).or_else(|| days('w', 7)) {
            return DAY.checked_mul(days).map(Self).ok_or(want);
        }
        let time = text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
        time.map(Self).ok_or(want)
    }
}

impl<'de> Deserialize<'de> for Age {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_said_in_days_or_as_any_length_of_time() {
        let secs = |text: &str| text.parse::<Age>().map(|age| age.0.as_secs()).ok();
        assert_eq!(secs("30d"), Some(30 * 86_400));
        assert_eq!(secs("2w"), Some(14 * 86_400));
        assert_eq!((secs("1h30m"), secs("90s"), secs("0s")), (Some(5_400), Some(90), Some(0)));
        for wrong in ["", "30", "d", "-1h", "30 days ago", "4294967295w"] {
            assert_eq!(secs(wrong), None, "{wrong}");
        }
    }
}
