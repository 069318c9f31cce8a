//! How the description says what types alone do not: the closed sets of names that come as text.

use utoipa::openapi::{
    Array, ArrayBuilder, Object, ObjectBuilder,
    schema::{SchemaType, Type},
};

use crate::domain::outcome::{Block, Breakage, FaultClass, Limit, Outcome};

/// How a run ended, if it has.
pub(super) fn outcome() -> Object {
    or_null("How it ended; `null`: it has not", Outcome::NAMES.to_vec())
}

/// What it was that ended a run, if its outcome says so.
pub(super) fn detail() -> Object {
    let about =
        "Which limit (`budget`), reason (`blocked`), class (`provider_error`) or fault (`failed`) it was";
    or_null(about, details())
}

/// An outcome, or a detail of one: what runs are looked for by.
pub(in crate::daemon) fn outcome_or_detail() -> Object {
    one_of([Outcome::NAMES.to_vec(), details()].concat())
}

/// Which tasks are given another attempt.
pub(super) fn retry_failed() -> Object {
    let not_done = Outcome::NAMES.iter().copied().filter(|name| *name != "done").collect();
    one_of([vec!["all"], not_done, details()].concat())
}

/// Labels with their values, as `team=search`.
pub(in crate::daemon) fn labels() -> Array {
    let label = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[^=]+="));
    ArrayBuilder::new().items(label).build()
}

/// Text that is JSON.
pub(super) fn json_text() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .content_media_type("application/json")
        .description(Some("JSON: an `EventView` if the event has an id"))
        .build()
}

fn details() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    names.extend(Limit::ALL.iter().map(|limit| limit.as_str()));
    names.extend(Block::ALL.iter().map(|block| block.as_str()));
    names.extend(FaultClass::ALL.iter().map(|class| class.as_str()));
    names.extend(Breakage::ALL.iter().map(|breakage| breakage.as_str()));
    names
}

fn one_of(names: Vec<&str>) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(sorted(names))).build()
}

fn or_null(about: &str, names: Vec<&str>) -> Object {
    let names = sorted(names).into_iter().map(serde_json::Value::from).chain([serde_json::Value::Null]);
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .enum_values(Some(names))
        .description(Some(about))
        .build()
}

/// A name that stands for two things is said once.
fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names.dedup();
    names
}
