//! A key that shows itself only to whoever asks for it by name.

use std::{fmt, sync::Arc};

/// A provider's key. Empty: none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a key.
    pub fn new(raw: impl Into<Arc<str>>) -> Self {
        Self(raw.into())
    }

    /// The key itself: for the request, never for a message or a log.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the key out of text that a server sent back.
    pub(crate) fn redact(&self, text: String) -> String {
        if self.is_empty() || !text.contains(&*self.0) { text } else { text.replace(&*self.0, "[key]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Secret(none)" } else { "Secret(..)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_show_in_debug_output_or_in_what_a_server_says() {
        let secret = Secret::new("sk-1234");
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(secret.redact("wrong key sk-1234!".to_owned()), "wrong key [key]!");
        assert_eq!(Secret::default().redact("as it is".to_owned()), "as it is");
    }
}
