//! Whole numbers as JSON has them: some who write it say `3.0` for 3.
//!
//! None is larger than what 64 bits with a sign hold, as many who read it have no others.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{Error, Unexpected, Visitor},
};

/// A whole number, or none.
pub(super) fn whole<'de, D: Deserializer<'de>, T: TryFrom<i64>>(from: D) -> Result<Option<T>, D::Error> {
    from.deserialize_any(Whole(PhantomData))
}

/// A whole number that must be there.
pub(super) fn required<'de, D: Deserializer<'de>, T: TryFrom<i64>>(from: D) -> Result<T, D::Error> {
    whole(from)?.ok_or_else(|| D::Error::invalid_type(Unexpected::Unit, &Whole::<T>(PhantomData)))
}

struct Whole<T>(PhantomData<T>);

/// Below this, whole numbers of floating point are exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl<T: TryFrom<i64>> Visitor<'_> for Whole<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = if size_of::<T>() <= 4 { i64::from(u32::MAX) } else { i64::MAX };
        write!(f, "a whole number from 0 to {most}")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        T::try_from(number).map(Some).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "it is whole and exact")]
    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        if number.fract() == 0.0 && number.abs() < EXACT {
            self.visit_i64(number as i64)
        } else {
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Holder {
        #[serde(default, deserialize_with = "super::whole")]
        small: Option<u32>,
        #[serde(default, deserialize_with = "super::whole")]
        large: Option<u64>,
    }

    fn read(text: &str) -> Result<Holder, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_number_is_taken_however_it_is_written() {
        for text in [r#"{"small": 3, "large": 4}"#, r#"{"small": 3.0, "large": 0.4e1}"#] {
            assert_eq!(read(text), Ok(Holder { small: Some(3), large: Some(4) }), "{text}");
        }
        assert_eq!(read(r#"{"small": null}"#), Ok(Holder { small: None, large: None }));
    }

    #[test]
    fn what_is_no_whole_number_is_refused_with_what_would_be() {
        for number in ["-1", "3.5", "4294967296", "1e300", "\"3\"", "true"] {
            let refused = read(&format!(r#"{{"small": {number}}}"#)).unwrap_err();
            assert!(refused.contains("a whole number from 0 to 4294967295"), "{number}: {refused}");
        }
        for number in ["-1", "9223372036854775808"] {
            let refused = read(&format!(r#"{{"large": {number}}}"#)).unwrap_err();
            assert!(refused.contains("a whole number from 0 to 9223372036854775807"), "{number}: {refused}");
        }
    }
}
