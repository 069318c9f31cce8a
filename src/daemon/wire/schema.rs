//! How the description says what types alone do not: the closed sets of names that come as text.

use utoipa::openapi::{
    Object, ObjectBuilder,
    schema::{SchemaType, Type},
};

use crate::domain::outcome::{Block, Breakage, FaultClass, Limit, Outcome};

/// How a run ended, if it has.
pub(super) fn outcome() -> Object {
    one_of("How it ended; `null`: it has not", Outcome::NAMES.to_vec())
}

/// What it was that ended a run, if its outcome says so.
pub(super) fn detail() -> Object {
    let mut names: Vec<&str> = Vec::new();
    names.extend(Limit::ALL.iter().map(|limit| limit.as_str()));
    names.extend(Block::ALL.iter().map(|block| block.as_str()));
    names.extend(FaultClass::ALL.iter().map(|class| class.as_str()));
    names.extend(Breakage::ALL.iter().map(|breakage| breakage.as_str()));
    names.sort_unstable();
    names.dedup();
    one_of(
        "Which limit (`budget`), reason (`blocked`), class (`provider_error`) or fault (`failed`) it was",
        names,
    )
}

/// Text that is JSON.
pub(super) fn json_text() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .content_media_type("application/json")
        .description(Some("JSON: an `EventView` if the event has an id"))
        .build()
}

fn one_of(about: &str, names: Vec<&str>) -> Object {
    let names = names.into_iter().map(serde_json::Value::from).chain([serde_json::Value::Null]);
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .enum_values(Some(names))
        .description(Some(about))
        .build()
}
