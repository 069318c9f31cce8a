//! Reads one line of a batch: a JSON object with the keys of a task.
//!
//! Every mistake of a line is reported at once, each with its field, what is wrong and what would be right. A line
//! without an id is named by its place (`line-7`); an id is text, never a number. Nothing is looked up: whether
//! a model, a tool or a folder exists is for the caller to say.

use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::domain::{
    json::RawJson,
    script::{Script, ScriptedReply},
    task::{Isolate, OnTruncated, Params, ResponseFormat},
    usage::Limits,
};

/// What a line asks for; what it leaves out is for defaults to fill.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskLine {
    pub id: Arc<str>,
    pub task: Arc<str>,
    pub model: Option<String>,
    pub system: Option<Arc<str>>,
    /// As it stands in the line; a relative one is relative to the input file.
    pub workspace: Option<String>,
    pub isolate: Option<Isolate>,
    pub tools: Option<Vec<Arc<str>>>,
    pub limits: Limits,
    pub facts: BTreeMap<String, String>,
    pub priority: Option<i32>,
    pub labels: BTreeMap<String, String>,
    pub meta: Option<RawJson>,
    pub params: Option<Params>,
    pub response_format: Option<ResponseFormat>,
    pub on_truncated: Option<OnTruncated>,
    pub stop_on_tool_error: Option<bool>,
    pub script: Option<ScriptSource>,
}

/// Where the scripted model's replies are.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptSource {
    /// In the line.
    Inline(Script),
    /// In a file, by its path as it stands in the line.
    File(String),
}

/// A mistake in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// The key at fault; empty: the line as a whole.
    pub field: String,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            f.write_str(&self.what)
        } else {
            write!(f, "{}: {}", self.field, self.what)
        }
    }
}

const KEYS: &[&str] = &[
    "id",
    "custom_id",
    "task",
    "prompt",
    "model",
    "system",
    "workspace",
    "isolate",
    "tools",
    "limits",
    "facts",
    "priority",
    "labels",
    "meta",
    "params",
    "response_format",
    "on_truncated",
    "stop_on_tool_error",
    "script",
];
/// Keys of the format that this version does nothing with; silence would be taken for a yes.
const UNSUPPORTED: &[&str] = &["skills"];
const LONGEST_ID: usize = 200;

impl TaskLine {
    /// A line that says nothing but what is to be done.
    pub fn of(id: &str, task: &str) -> Self {
        Self {
            id: id.into(),
            task: task.into(),
            model: None,
            system: None,
            workspace: None,
            isolate: None,
            tools: None,
            limits: Limits::default(),
            facts: BTreeMap::new(),
            priority: None,
            labels: BTreeMap::new(),
            meta: None,
            params: None,
            response_format: None,
            on_truncated: None,
            stop_on_tool_error: None,
            script: None,
        }
    }

    /// What the line with this number is called if it does not say.
    pub fn id_of(number: usize) -> Arc<str> {
        format!("line-{number}").into()
    }

    /// Reads the line with this number.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(text: &str, number: usize) -> Result<Self, Vec<LineError>> {
        let Entries(entries) = serde_json::from_str(text).map_err(|error| {
            let place = match error.is_data() {
                true => String::new(),
                false => format!("not JSON at column {}: ", error.column()),
            };
            let want = r#"want one JSON object, as {"id": "a", "task": "..."}"#;
            let what = format!("{place}{}; {want}", said(&error));
            vec![LineError { field: String::new(), what }]
        })?;
        let mut fields = Fields { entries, errors: Vec::new() };
        fields.refuse_unknown();
        let id = fields.either("id", "custom_id").map(|(key, raw)| fields.id(key, raw));
        let task = match fields.either("task", "prompt") {
            None => {
                fields.refuse("task", "is missing; say what to do");
                None
            }
            Some((key, raw)) => fields.decode::<Arc<str>>(key, raw).filter(|task| {
                let empty = task.trim().is_empty();
                if empty {
                    fields.refuse(key, "is empty; say what to do");
                }
                !empty
            }),
        };
        let line = Self {
            id: id.flatten().unwrap_or_else(|| Self::id_of(number)),
            task: task.unwrap_or_default(),
            model: fields.take("model"),
            system: fields.take("system"),
            workspace: fields.take("workspace"),
            isolate: fields.take("isolate"),
            tools: fields.take("tools"),
            limits: fields.take("limits").unwrap_or_default(),
            facts: fields.take("facts").unwrap_or_default(),
            priority: fields.take("priority"),
            labels: fields.take("labels").unwrap_or_default(),
            meta: fields.raw("meta").map(|raw| RawJson(raw.to_owned().into())),
            params: fields.take("params"),
            response_format: fields.take("response_format"),
            on_truncated: fields.take("on_truncated"),
            stop_on_tool_error: fields.take("stop_on_tool_error"),
            script: fields.script(),
        };
        if fields.errors.is_empty() { Ok(line) } else { Err(fields.errors) }
    }
}

struct Fields<'a> {
    entries: Vec<(String, &'a RawValue)>,
    errors: Vec<LineError>,
}

impl<'a> Fields<'a> {
    fn refuse(&mut self, field: &str, what: impl Into<String>) {
        self.errors.push(LineError { field: field.to_owned(), what: what.into() });
    }

    fn refuse_unknown(&mut self) {
        let names: Vec<String> = self.entries.iter().map(|(key, _)| key.clone()).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                self.refuse(name, "is there twice; keep one of the two");
            } else if UNSUPPORTED.contains(&name.as_str()) {
                self.refuse(name, "is not supported by this version yet; leave it out");
            } else if !KEYS.contains(&name.as_str()) {
                let what = nearest(name).map_or_else(
                    || format!("is no key of a task; want one of {}", KEYS.join(", ")),
                    |near| format!("is no key of a task; did you mean {near:?}?"),
                );
                self.refuse(name, what);
            }
        }
    }

    /// The value of a key. `null` stands for a key that is left out.
    fn raw(&self, key: &str) -> Option<&'a RawValue> {
        let found = self.entries.iter().find(|(name, _)| name == key);
        found.map(|(_, raw)| *raw).filter(|raw| raw.get() != "null")
    }

    fn either(&mut self, key: &'static str, other: &'static str) -> Option<(&'static str, &'a RawValue)> {
        match (self.raw(key), self.raw(other)) {
            (Some(raw), None) => Some((key, raw)),
            (None, Some(raw)) => Some((other, raw)),
            (None, None) => None,
            (Some(raw), Some(_)) => {
                self.refuse(
                    other,
                    format!("stands beside {key:?}, which means the same; keep one of the two"),
                );
                Some((key, raw))
            }
        }
    }

    fn take<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        self.raw(key).and_then(|raw| self.decode(key, raw))
    }

    fn decode<T: DeserializeOwned>(&mut self, key: &str, raw: &RawValue) -> Option<T> {
        let error = match serde_json::from_str(raw.get()) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let within = entries_at_fault::<T>(raw);
        if within.is_empty() {
            self.refuse(key, said(&error));
        }
        for (name, error) in within {
            let what = said(&error);
            let what = if name.ends_with("_usd") { what.replace(NUMBER, DOLLARS) } else { what };
            self.refuse(&format!("{key}.{name}"), what);
        }
        None
    }

    fn id(&mut self, key: &str, raw: &RawValue) -> Option<Arc<str>> {
        if raw.get().starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            self.refuse(key, format!("is a number; want text, as \"{}\"", raw.get()));
            return None;
        }
        let id: Arc<str> = self.decode(key, raw)?;
        let wrong = if id.trim().is_empty() {
            "is empty; want text that names the task, or no id at all"
        } else if id.chars().any(char::is_control) {
            "has a control character in it; want text that can be shown on one line"
        } else if id.len() > LONGEST_ID {
            "is longer than 200 bytes; want a short name"
        } else {
            return Some(id);
        };
        self.refuse(key, wrong);
        None
    }

    fn script(&mut self) -> Option<ScriptSource> {
        let raw = self.raw("script")?;
        match raw.get().as_bytes().first() {
            Some(b'"') => self.decode("script", raw).map(ScriptSource::File),
            Some(b'[') => {
                // A list it is, since it begins as one and is JSON.
                let replies: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
                let replies: Vec<Option<ScriptedReply>> = replies
                    .into_iter()
                    .enumerate()
                    .map(|(index, reply)| self.decode(&format!("script[{index}]"), reply))
                    .collect();
                let replies: Option<Arc<[_]>> = replies.into_iter().collect();
                replies.map(|replies| ScriptSource::Inline(Script(replies)))
            }
            _ => {
                self.refuse("script", "is neither a list of replies nor the path of a file with one");
                None
            }
        }
    }
}

/// Which entries of an object are wrong by themselves. Nothing, if it is none or each of them is fine alone.
fn entries_at_fault<T: DeserializeOwned>(raw: &RawValue) -> Vec<(String, serde_json::Error)> {
    let takes_entries_alone = serde_json::from_str::<T>("{}").is_ok();
    let entries = serde_json::from_str(raw.get()).ok().filter(|_| takes_entries_alone);
    let Some(Entries(entries)) = entries else { return Vec::new() };
    let fault = |(name, value): (String, &RawValue)| {
        let alone = format!("{{{}:{}}}", serde_json::Value::from(name.as_str()), value.get());
        serde_json::from_str::<T>(&alone).err().map(|error| (name, error))
    };
    entries.into_iter().filter_map(fault).collect()
}

const NUMBER: &str = "expected a number";
const DOLLARS: &str = "expected a number of US dollars";

/// What `serde_json` says, without where.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what).replace('`', "'");
    match text.rsplit_once(", expected ") {
        Some((what, "u32" | "u64")) => format!("{what}, expected a whole number, 0 or more"),
        Some((what, "a map" | "struct ScriptedReply" | "struct Limits" | "struct Params")) => {
            format!("{what}, expected an object")
        }
        Some((what, "f64")) => format!("{what}, {NUMBER}"),
        Some((what, "i32" | "i64")) => format!("{what}, expected a whole number"),
        Some(_) | None => text,
    }
}

/// The key that a misspelt one is likely to mean.
fn nearest(name: &str) -> Option<&'static str> {
    let best = KEYS.iter().map(|key| (distance(name, key), *key)).min()?;
    (best.0 <= 2 && best.0 < name.chars().count()).then_some(best.1)
}

/// How many letters to add, drop or change to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, from) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, to) in to.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = change.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

/// The entries of an object as they stand, doubled keys included.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Collect(PhantomData))
    }
}

struct Collect<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for Collect<'a> {
    type Value = Entries<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'a>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

#[cfg(test)]
mod tests;
