//! Where a request goes: segments and parameters, each escaped.

use reqwest::Url;

/// A path of the API with its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    segments: Vec<String>,
    parameters: Vec<(String, String)>,
}

impl Route {
    /// A path of these segments. They need no escaping: whatever a person calls a run is one segment.
    pub fn to<S: Into<String>>(segments: impl IntoIterator<Item = S>) -> Self {
        Self { segments: segments.into_iter().map(Into::into).collect(), parameters: Vec::new() }
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.parameters.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a parameter if there is a value for it.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(super) fn url(&self, base: &Url) -> Url {
        let mut url = base.clone();
        // A base of http has segments.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(&self.segments);
        }
        if !self.parameters.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.parameters);
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_slash_is_one_segment() {
        let base = Url::parse("http://herder/").expect("a base");
        let route =
            Route::to(["v1", "runs", "a/b ?"]).with("label", "team=a&b").with_some("limit", None::<u32>);
        assert_eq!(route.url(&base).as_str(), "http://herder/v1/runs/a%2Fb%20%3F?label=team%3Da%26b");
    }
}
