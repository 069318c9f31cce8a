//! Writes a request's fields, where those of the settings come before herder's own.

use serde::{Serialize, ser::SerializeMap};
use serde_json::{Map, Value};

/// A JSON object that is being written.
pub(crate) struct Fields<'a, M> {
    map: M,
    extra: &'a Map<String, Value>,
}

impl<'a, M: SerializeMap> Fields<'a, M> {
    /// Writes into `map`. A field of `extra` replaces one of the same name, and a null takes it away.
    pub(crate) const fn new(map: M, extra: &'a Map<String, Value>) -> Self {
        Self { map, extra }
    }

    /// Writes a field that has a value.
    pub(crate) fn put<T: Serialize>(&mut self, name: &str, value: Option<T>) -> Result<(), M::Error> {
        match value {
            Some(value) if !self.extra.contains_key(name) => self.map.serialize_entry(name, &value),
            Some(_) | None => Ok(()),
        }
    }

    /// Writes the fields of the settings, and ends the object.
    pub(crate) fn end(mut self) -> Result<M::Ok, M::Error> {
        for (name, value) in self.extra.iter().filter(|(_, value)| !value.is_null()) {
            self.map.serialize_entry(name, value)?;
        }
        self.map.end()
    }
}
