//! Lays one source of configuration over another, and remembers where each value came from.
//!
//! Every source gets a range of its own in one numbering of bytes, so the span of a merged value, or of an error about
//! it, names both the source and the line. Knows nothing of what the keys mean.

use std::{borrow::Cow, ops::Range, path::PathBuf};

use serde::Deserialize;
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue, ValueDeserializer},
};

use super::ConfigError;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    BuiltIn,
    File(PathBuf),
    Variable(String),
    Flag(&'static str),
}

/// How a single value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// As a TOML value.
    Toml,
    /// As a person writes a variable: text that is no TOML value, or stands where text is wanted, is taken as it is.
    Loose,
}

/// Sources of configuration, merged so far.
#[derive(Debug, Default)]
pub(super) struct Layers<'t> {
    root: DeTable<'t>,
    sources: Vec<Source>,
}

#[derive(Debug)]
struct Source {
    origin: Origin,
    range: Range<usize>,
    line_ends: Vec<usize>,
}

impl<'t> Layers<'t> {
    /// Lays a TOML document over what is there. `relocate` may rewrite its values by their path first.
    pub(super) fn add_document(
        &mut self,
        origin: Origin,
        text: &'t str,
        relocate: impl Fn(&[&str], &mut DeString<'t>),
    ) -> Result<(), ConfigError> {
        let base = self.begin(origin, text);
        let mut document =
            DeTable::parse(text).map_err(|error| self.unread(&error, base, text))?.into_inner();
        each_string(&mut document, &mut Vec::new(), &relocate);
        merge(&mut self.root, document, base);
        Ok(())
    }

    /// Lays one value over what is there.
    pub(super) fn add_value(
        &mut self,
        origin: Origin,
        path: &[&str],
        text: &'t str,
        spelling: Spelling,
    ) -> Result<(), ConfigError> {
        let base = self.begin(origin, text);
        let Some((last, tables)) = path.split_last() else { return Ok(()) };
        let wants_text =
            spelling == Spelling::Loose && self.find(path).is_some_and(|value| value.get_ref().is_str());
        let wants_list = self.find(path).is_some_and(|value| value.get_ref().is_array());
        let literal = if wants_text { None } else { DeValue::parse(text).ok() };
        let value = match literal {
            Some(value) => value,
            None if wants_list => Spanned::new(0..text.len(), list(text)),
            None => Spanned::new(0..text.len(), DeValue::String(Cow::Borrowed(text))),
        };
        let mut table = DeTable::new();
        table.insert(Spanned::new(0..text.len(), Cow::Owned((*last).to_owned())), value);
        for name in tables.iter().rev() {
            let mut outer = DeTable::new();
            let key = Spanned::new(0..text.len(), Cow::Owned((*name).to_owned()));
            outer.insert(key, Spanned::new(0..text.len(), DeValue::Table(table)));
            table = outer;
        }
        merge(&mut self.root, table, base);
        Ok(())
    }

    /// Reads the merged configuration as a type.
    pub(super) fn read<T: Deserialize<'t>>(&self) -> Result<T, ConfigError> {
        let root = Spanned::new(0..0, DeValue::Table(self.root.clone()));
        T::deserialize(ValueDeserializer::from(root)).map_err(|error| self.explain(&error, 0))
    }

    /// The merged values.
    pub(super) const fn root(&self) -> &DeTable<'t> {
        &self.root
    }

    /// Refuses the value at `path`, which is well-formed but not right.
    pub(super) fn refuse(&self, path: &[&str], what: impl Into<String>) -> ConfigError {
        ConfigError::Invalid { place: self.place_of(path), field: path.join("."), what: what.into() }
    }

    /// The source of the value at `path`, as by [`Self::place`].
    pub(super) fn place_of(&self, path: &[&str]) -> String {
        self.find(path).map_or_else(|| "built in".to_owned(), |value| self.place(&value.span()))
    }

    /// The source of a merged value, in words: `FILE:LINE`, a variable, a flag, or `built in`.
    pub(super) fn place(&self, span: &Range<usize>) -> String {
        let Some(source) = self.sources.iter().find(|source| source.range.contains(&span.start)) else {
            return "built in".to_owned();
        };
        match &source.origin {
            Origin::BuiltIn => "built in".to_owned(),
            Origin::File(path) => {
                let line = 1 + source.line_ends.partition_point(|end| *end < span.start);
                format!("{}:{line}", path.display())
            }
            Origin::Variable(name) => name.clone(),
            Origin::Flag(name) => (*name).to_owned(),
        }
    }

    fn begin(&mut self, origin: Origin, text: &str) -> usize {
        let base = self.sources.last().map_or(0, |source| source.range.end);
        let line_ends = text.match_indices('\n').map(|(at, _)| base + at).collect();
        // One more than the text has, so that an error at its end has a place too.
        self.sources.push(Source { origin, range: base..base + text.len() + 1, line_ends });
        base
    }

    fn find(&self, path: &[&str]) -> Option<&Spanned<DeValue<'t>>> {
        let (last, tables) = path.split_last()?;
        let mut table = &self.root;
        for name in tables {
            table = table.get(*name)?.get_ref().as_table()?;
        }
        table.get(*last)
    }

    /// Why a text is no TOML. A key that is there twice is named.
    fn unread(&self, error: &toml::de::Error, base: usize, text: &str) -> ConfigError {
        let told = self.explain(error, base);
        let key = error.span().filter(|_| error.message() == "duplicate key").and_then(|span| text.get(span));
        match (told, key) {
            (ConfigError::Invalid { place, .. }, Some(key)) => ConfigError::Invalid {
                place,
                field: key.trim().to_owned(),
                what: "is there twice; keep one of the two".to_owned(),
            },
            (told, _) => told,
        }
    }

    fn explain(&self, error: &toml::de::Error, base: usize) -> ConfigError {
        let span = error.span().map_or(base..base, |span| base + span.start..base + span.end);
        let mut field = Vec::new();
        path_to(&self.root, span.start, &mut field);
        ConfigError::Invalid {
            place: self.place(&span),
            field: field.join("."),
            what: plain(
                &error.message().replace('`', "'").replace('\n', ", "),
                field.last().map(String::as_str),
            ),
        }
    }
}

/// Says what was expected in words, where `serde` names a type, and what is meant by a key that many try.
fn plain(message: &str, key: Option<&str>) -> String {
    if message.starts_with("unknown field 'api_key'") {
        return "unknown field 'api_key'; did you mean api_key_env, the name of the variable that holds it, or \
                api_key_file?"
            .to_owned();
    }
    if let Some(what) = message.strip_suffix("wanted string or table") {
        return format!("{what}expected a string");
    }
    let Some((what, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let words = match expected {
        "a nonzero usize" | "a nonzero u32" | "a nonzero u64" => "a whole number, 1 or more",
        "usize" | "u32" | "u64" => "a whole number, 0 or more",
        "i32" => "a whole number",
        "f64" if key.is_some_and(|key| key.contains("usd")) => "a number of US dollars",
        "f64" => "a number",
        "a sequence" => "a list, as [\"a\", \"b\"]",
        "a map" => "a table",
        other => other,
    };
    format!("{what}, expected {words}")
}

/// Text between commas, as a list.
fn list(text: &str) -> DeValue<'_> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let values =
        items.map(|item| Spanned::new(0..text.len(), DeValue::String(Cow::Borrowed(item)))).collect();
    DeValue::Array(values)
}

fn merge<'t>(into: &mut DeTable<'t>, over: DeTable<'t>, base: usize) {
    for (key, value) in over {
        let span = shifted(&value.span(), base);
        let lower = into.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut);
        match (lower, value.into_inner()) {
            (Some(DeValue::Table(lower)), DeValue::Table(upper)) => merge(lower, upper, base),
            (_, mut value) => {
                shift(&mut value, base);
                // An equal key would keep its old place.
                into.remove(key.get_ref().as_ref());
                let key = Spanned::new(shifted(&key.span(), base), key.into_inner());
                into.insert(key, Spanned::new(span, value));
            }
        }
    }
}

const fn shifted(span: &Range<usize>, base: usize) -> Range<usize> {
    span.start + base..span.end + base
}

/// Moves the place of everything inside a value.
fn shift(value: &mut DeValue<'_>, base: usize) {
    if let DeValue::Table(table) = value {
        let mut moved = DeTable::new();
        merge(&mut moved, std::mem::take(table), base);
        *table = moved;
    } else if let DeValue::Array(items) = value {
        for item in items.iter_mut() {
            let span = shifted(&item.span(), base);
            shift(item.get_mut(), base);
            *item = Spanned::new(span, std::mem::replace(item.get_mut(), DeValue::Boolean(false)));
        }
    }
}

/// The keys that lead to the value, or the key, at a place.
fn path_to(table: &DeTable<'_>, at: usize, path: &mut Vec<String>) -> bool {
    for (key, value) in table.iter() {
        path.push(key.get_ref().to_string());
        let inner = value.get_ref().as_table().is_some_and(|inner| path_to(inner, at, path));
        if inner || key.span().contains(&at) || value.span().contains(&at) || value.span().start == at {
            return true;
        }
        path.pop();
    }
    false
}

fn each_string<'a, 't>(
    table: &'a mut DeTable<'t>,
    path: &mut Vec<&'a str>,
    visit: &impl Fn(&[&str], &mut DeString<'t>),
) {
    for (key, value) in table.iter_mut() {
        path.push(key.get_ref().as_ref());
        match value.get_mut() {
            DeValue::String(text) => visit(path, text),
            DeValue::Table(inner) => each_string(inner, path, visit),
            DeValue::Array(items) => {
                for item in items.iter_mut() {
                    if let DeValue::String(text) = item.get_mut() {
                        visit(path, text);
                    }
                }
            }
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {}
        }
        path.pop();
    }
}
