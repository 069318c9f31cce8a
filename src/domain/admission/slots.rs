//! How many runs may have a slot at once: a number, or as many as their models have places for.

use std::{
    fmt,
    num::{NonZeroU32, NonZeroUsize},
    str::FromStr,
};

use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected, Visitor},
};

/// How many runs may have a slot at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// So many.
    Fixed(NonZeroUsize),
    /// As many as their models have places for. The bounds are those of each account's places.
    Follow {
        /// Never fewer.
        min: NonZeroU32,
        /// At first.
        start: NonZeroU32,
        /// Never more; of runs with a slot, neither.
        max: NonZeroU32,
    },
}

const WANT: &str = "a whole number, 1 or more, or \"auto\", or \"MIN-START-MAX\" as \"2-20-200\"";

impl Slots {
    /// What `auto` stands for.
    pub const AUTO: Self = Self::Follow {
        min: NonZeroU32::MIN,
        start: NonZeroU32::new(20).unwrap(),
        max: NonZeroU32::new(1_000).unwrap(),
    };

    /// Runs that may have a slot at the very most.
    pub fn most(self) -> NonZeroUsize {
        match self {
            Self::Fixed(runs) => runs,
            Self::Follow { max, .. } => NonZeroUsize::try_from(max).unwrap_or(NonZeroUsize::MAX),
        }
    }
}

impl FromStr for Slots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("want {WANT}");
        if text == "auto" {
            return Ok(Self::AUTO);
        }
        let Some((min, rest)) = text.split_once('-') else {
            return text.parse().map(Self::Fixed).map_err(|_| wrong());
        };
        let (start, max) = rest.split_once('-').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<NonZeroU32>().map_err(|_| wrong());
        let (min, start, max) = (number(min)?, number(start)?, number(max)?);
        if min <= start && start <= max {
            Ok(Self::Follow { min, start, max })
        } else {
            Err("want MIN no more than START, and START no more than MAX".to_owned())
        }
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed(runs) => runs.fmt(f),
            Self::AUTO => f.write_str("auto"),
            Self::Follow { min, start, max } => write!(f, "{min}-{start}-{max}"),
        }
    }
}

impl<'de> Deserialize<'de> for Slots {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

struct Either;

impl Visitor<'_> for Either {
    type Value = Slots;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WANT)
    }

    fn visit_i64<E: Error>(self, runs: i64) -> Result<Slots, E> {
        let runs_or_none = usize::try_from(runs).ok().and_then(NonZeroUsize::new);
        runs_or_none.map(Slots::Fixed).ok_or_else(|| E::invalid_value(Unexpected::Signed(runs), &self))
    }

    fn visit_u64<E: Error>(self, runs: u64) -> Result<Slots, E> {
        self.visit_i64(i64::try_from(runs).unwrap_or(i64::MAX))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Slots, E> {
        text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_a_number_or_follow_the_models() {
        for text in ["1", "100", "auto", "2-5-50", "3-3-3"] {
            let slots: Slots = text.parse().unwrap();
            assert_eq!(slots.to_string(), text);
        }
        assert_eq!("1-20-1000".parse(), Ok(Slots::AUTO));
        assert_eq!("2-5-50".parse::<Slots>().unwrap().most().get(), 50);
        for wrong in ["", "0", "many", "-3", "5-2-50", "1-2", "0-1-2", "1-2-3-4", "1.5"] {
            assert!(wrong.parse::<Slots>().is_err(), "{wrong}");
        }
        assert_eq!(serde_json::from_str::<Slots>("7").unwrap().most().get(), 7);
        assert_eq!(serde_json::from_str::<Slots>("\"auto\"").unwrap(), Slots::AUTO);
        assert!(serde_json::from_str::<Slots>("0").is_err());
    }
}
