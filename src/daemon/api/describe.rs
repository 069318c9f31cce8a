//! The OpenAPI description: what all routes have in common, said once.
//!
//! A route describes what it takes and what it answers when it does what it is asked. Who may ask, the version, and every
//! refusal with its codes come from here, by what kind of route it is. Knows no single route but the one that is open to all.

use std::collections::BTreeMap;

use axum::{
    Extension,
    body::Bytes,
    http::{
        StatusCode,
        header::{ALLOW, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE},
    },
    response::{IntoResponse as _, Response},
};
use serde_json::Value;
use utoipa::{
    OpenApi, ToSchema as _,
    openapi::{
        self, Components, ContentBuilder, HeaderBuilder, ObjectBuilder, PathItem, Ref, RefOr,
        ResponseBuilder,
        path::Operation,
        schema::Type,
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

use crate::daemon::wire::{API_VERSION, ApiError, Code, EventView, KEY_HEADER, VERSION_HEADER};

#[derive(OpenApi)]
#[openapi(
    info(title = "herder", description = include_str!("about.md")),
    components(schemas(ApiError, Code, EventView)),
    tags(
        (name = "runs", description = "Single runs, whether of a batch or not"),
        (name = "batches", description = "Many tasks as JSON lines"),
        (name = "approvals", description = "Calls that people decide about"),
        (name = "events", description = "What happens, as server-sent events"),
        (name = "daemon", description = "The daemon itself"),
    )
)]
struct Common;

/// The name of the token's scheme.
const TOKEN: &str = "token";

/// What parameters mean that many routes have.
const PARAMETERS: &[(&str, &str)] = &[
    ("run", "A run's id, a unique beginning of one, or a task's id, which stands for its latest attempt"),
    ("batch", "A batch's id, a unique beginning of one, or its name, which stands for the latest so called"),
    ("call", "A call's id, as `open_calls` of its run has it"),
    ("approval", "The run, as `run` elsewhere, a dot and the approval's number in the run: `task-17.1`"),
    ("model", "What runs call the model"),
    ("last-event-id", "The id of the last event that came; it goes before `after`"),
];

/// Open to who has no token, too.
const OPEN_PATH: &str = "/healthz";

/// What all routes have in common, before they add themselves.
pub(super) fn common() -> openapi::OpenApi {
    Common::openapi()
}

/// The description as it is served.
#[derive(Clone)]
pub(super) struct Described(Bytes);

impl Described {
    /// Adds what all routes have in common to what they said of themselves.
    pub(super) fn of(mut api: openapi::OpenApi) -> Self {
        for (path, item) in &mut api.paths.paths {
            for operation in operations(item) {
                complete(path, operation);
            }
        }
        add_common(api.components.get_or_insert_default());
        api.security = Some(vec![SecurityRequirement::new(TOKEN, [""; 0])]);
        // A description is plain data, which always has a JSON form.
        let mut api = serde_json::to_value(api).unwrap_or_default();
        tidy(&mut api);
        Self(api.to_string().into())
    }
}

/// Says what types cannot. What is left out of a request is absent, not `null`. Numbers of 32 bits without a sign, which
/// OpenAPI does not know, are numbers of 64 with a maximum.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("in") {
                fields.get_mut("schema").into_iter().for_each(never_null);
            }
            let body = fields.get_mut("requestBody").and_then(|body| body.get_mut("content"));
            for content in
                body.and_then(Value::as_object_mut).into_iter().flat_map(|content| content.values_mut())
            {
                content.get_mut("schema").into_iter().for_each(never_null);
            }
            let unsigned = fields.get("minimum").and_then(Value::as_f64).is_some_and(|least| least >= 0.0);
            if unsigned && fields.get("format").is_some_and(|format| format == "int32") {
                fields.insert("format".to_owned(), "int64".into());
                fields.entry("maximum").or_insert(u32::MAX.into());
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A schema without the `null` that stands for an absent value.
fn never_null(schema: &mut Value) {
    if let Some(Value::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = &**kinds {
            schema["type"] = kind.clone();
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("oneOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
        if let [choice] = &**choices {
            *schema = choice.clone();
        }
    }
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "daemon", operation_id = "describe",
    responses((status = 200, description = "OpenAPI 3.1", body = Object, content_type = "application/json")))]
pub(super) async fn described(Extension(Described(text)): Extension<Described>) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let reads = item.get.as_mut().map(|operation| (false, operation));
    let changes = [item.post.as_mut(), item.patch.as_mut(), item.put.as_mut(), item.delete.as_mut()];
    reads.into_iter().chain(changes.into_iter().flatten().map(|operation| (true, operation)))
}

fn complete(path: &str, (changes, operation): (bool, &mut Operation)) {
    for (status, answer) in &mut operation.responses.responses {
        let RefOr::T(answer) = answer else { continue };
        if answer.description.is_empty() {
            "What was asked for".clone_into(&mut answer.description);
        }
        answer.headers.insert(VERSION_HEADER.to_owned(), RefOr::T(version_header()));
        if status == "201" {
            answer.headers.insert(LOCATION.to_string(), RefOr::T(text_header("Where it is")));
        }
    }
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        let about = PARAMETERS.iter().find(|(name, _)| *name == parameter.name);
        parameter.description = parameter.description.take().or_else(|| Some(about?.1.to_owned()));
    }
    let has = |name: &str| {
        let mut parameters = operation.parameters.iter().flatten();
        parameters.any(|parameter| matches!(parameter, RefOr::T(parameter) if parameter.name == name))
    };
    let named = path.contains('{') || has("batch");
    let mut statuses = vec![400, 403, 500, 503];
    if path == OPEN_PATH {
        operation.security = Some(Vec::new());
    } else {
        statuses.push(401);
    }
    if named {
        statuses.extend([404, 409]);
    }
    if has(KEY_HEADER) {
        statuses.push(409);
    }
    if changes {
        statuses.push(422);
    }
    if operation.request_body.is_some() {
        statuses.extend([408, 413]);
    }
    for status in statuses {
        let refusal = RefOr::Ref(Ref::from_response_name(name(status)));
        operation.responses.responses.insert(status.to_string(), refusal);
    }
}

fn add_common(components: &mut Components) {
    let token = Http::builder()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("Over TCP: what stands in the daemon's token file. Over the Unix socket: nothing"));
    components.security_schemes.insert(TOKEN.to_owned(), RefOr::T(SecurityScheme::Http(token.build())));
    let mut codes: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in Code::ALL {
        codes.entry(code.status()).or_default().push(*code);
    }
    for (status, codes) in codes {
        components.responses.insert(name(status), RefOr::T(refusal(status, &codes)));
    }
}

/// What answers with this status are called in the description.
fn name(status: u16) -> String {
    let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    reason.unwrap_or("Refused").replace(' ', "")
}

fn refusal(status: u16, codes: &[Code]) -> openapi::Response {
    let about = codes.iter().map(|code| format!("- `{}`: {}", code.as_str(), code.about()));
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ApiError::name()))).build();
    let refusal = ResponseBuilder::new()
        .description(about.collect::<Vec<_>>().join("\n"))
        .header(VERSION_HEADER, version_header())
        .content("application/json", content);
    match status {
        401 => refusal.header(WWW_AUTHENTICATE.as_str(), text_header("`Bearer`")),
        405 => refusal
            .header(ALLOW.as_str(), text_header("The methods that the route takes, with commas between")),
        _ => refusal,
    }
    .build()
}

fn text_header(about: &str) -> openapi::Header {
    let text = ObjectBuilder::new().schema_type(Type::String);
    HeaderBuilder::new().schema(Some(text)).description(Some(about)).build()
}

fn version_header() -> openapi::Header {
    let version = ObjectBuilder::new().schema_type(Type::Integer).enum_values(Some([API_VERSION]));
    HeaderBuilder::new().schema(Some(version)).description(Some("The version of the API")).build()
}
