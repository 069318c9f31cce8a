//! Shows the configuration in force, each value with its source. Secrets are not shown.

use std::fmt::Write as _;

use serde::Deserialize as _;
use toml::{
    Spanned,
    de::{DeTable, DeValue, ValueDeserializer},
};

use super::layer::Layers;
use crate::domain::text::bare_url;

const HIDDEN: &str = "(secret)";

/// The merged values with their sources.
#[derive(Clone, Debug, Default)]
pub struct Effective {
    toml: String,
    config: Table,
    sources: Table,
    section: Vec<String>,
}

type Table = serde_json::Map<String, serde_json::Value>;

impl Effective {
    pub(super) fn of(layers: &Layers<'_>) -> Self {
        let mut shown = Self::default();
        shown.add(layers, layers.root(), &mut Vec::new());
        shown
    }

    /// As TOML that herder would read, each value with its source in a comment.
    pub fn to_toml(&self) -> &str {
        &self.toml
    }

    /// As JSON: `config` with the values, `sources` with the source of each by its dotted name.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "config": self.config, "sources": self.sources })
    }

    /// Values come before tables, so that a table's values stand under its own name.
    fn add<'a>(&mut self, layers: &Layers<'_>, table: &'a DeTable<'_>, path: &mut Vec<&'a str>) {
        for (key, value) in table.iter().filter(|(_, value)| !value.get_ref().is_table()) {
            path.push(key.get_ref());
            self.add_value(path, &shown(path, value), layers.place(&value.span()));
            path.pop();
        }
        for (key, value) in table.iter() {
            if let Some(inner) = value.get_ref().as_table() {
                path.push(key.get_ref());
                self.add(layers, inner, path);
                path.pop();
            }
        }
    }

    fn add_value(&mut self, path: &[&str], value: &toml::Value, source: String) {
        let Some((key, tables)) = path.split_last() else { return };
        if self.section != tables {
            let gap = if self.toml.is_empty() { "" } else { "\n" };
            let name: Vec<_> = tables.iter().map(|name| quoted(name)).collect();
            let _written = writeln!(self.toml, "{gap}[{}]", name.join("."));
            self.section = tables.iter().map(|name| (*name).to_owned()).collect();
        }
        let _written = writeln!(self.toml, "{} = {value}  # {source}", quoted(key));
        let mut table = &mut self.config;
        for name in tables {
            let inner = table.entry(*name).or_insert_with(|| serde_json::json!({}));
            let Some(inner) = inner.as_object_mut() else { return };
            table = inner;
        }
        table.insert((*key).to_owned(), serde_json::json!(value));
        self.sources.insert(path.join("."), source.into());
    }
}

fn shown(path: &[&str], value: &Spanned<DeValue<'_>>) -> toml::Value {
    if matches!(path, ["models", _, "headers", _]) {
        return toml::Value::String(HIDDEN.to_owned());
    }
    // What was merged was read before, so this reads as well.
    let mut shown = toml::Value::deserialize(ValueDeserializer::from(value.clone()))
        .unwrap_or_else(|_| toml::Value::String(String::new()));
    if let (["models", _, "base_url"], toml::Value::String(url)) = (path, &mut shown) {
        *url = bare_url(url).into_owned();
    }
    if let (["notify"], Some(all)) = (path, shown.as_array_mut()) {
        // Whoever knows it may post there.
        for url in all.iter_mut().filter_map(|one| one.get_mut("url")) {
            *url = toml::Value::String(HIDDEN.to_owned());
        }
    }
    shown
}

fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { toml::Value::String(key.to_owned()).to_string() }
}
