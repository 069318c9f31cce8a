//! Why something was refused, in a form that programs branch on and people read.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiError {
    /// What programs branch on.
    pub code: Code,
    /// One sentence for people.
    pub message: String,
    /// With `invalid_input`: each mistake, with its line and field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
}

macro_rules! codes {
    ($(#[doc = $doc:literal] $code:ident => ($name:literal, $status:literal)),+ $(,)?) => {
        /// What kind of refusal it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Code {
            $(#[doc = $doc] $code),+
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$code),+];

            /// The code as it is written.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $name),+
                }
            }

            /// When it is given, in one sentence.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$code => $doc.trim_ascii()),+
                }
            }

            /// The HTTP status that comes with it.
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$code => $status),+
                }
            }
        }
    };
}

codes! {
    /// The request is not what the route takes: its JSON, a parameter, a header.
    BadRequest => ("bad_request", 400),
    /// Client and daemon speak different versions of the API.
    ApiVersion => ("api_version", 400),
    /// There is no token, or another one.
    Unauthorized => ("unauthorized", 401),
    /// The caller may not do this.
    Forbidden => ("forbidden", 403),
    /// There is no such route.
    UnknownRoute => ("unknown_route", 404),
    /// There is no such run.
    UnknownRun => ("unknown_run", 404),
    /// The run has no such call.
    UnknownCall => ("unknown_call", 404),
    /// The run was never asked about: it has no such approval.
    UnknownApproval => ("unknown_approval", 404),
    /// The run has no patch: it has not ended, changed nothing, or had no workspace of its own.
    NoPatch => ("no_patch", 404),
    /// There is no such batch.
    UnknownBatch => ("unknown_batch", 404),
    /// There is no such model.
    UnknownModel => ("unknown_model", 404),
    /// The route exists, but not for this method.
    MethodNotAllowed => ("method_not_allowed", 405),
    /// The request did not arrive in time.
    Timeout => ("timeout", 408),
    /// The name stands for several runs.
    Ambiguous => ("ambiguous", 409),
    /// The idempotency key was used for something else.
    KeyReused => ("key_reused", 409),
    /// The batch was submitted with other lines, and they do not fit what is of record.
    Misfit => ("misfit", 409),
    /// The batch is still at work on other lines.
    Busy => ("busy", 409),
    /// The approval was resolved before, by another command or in another way.
    Resolved => ("resolved", 409),
    /// The run has ended.
    Ended => ("ended", 409),
    /// The run has not ended.
    NotEnded => ("not_ended", 409),
    /// The run is ending already.
    Ending => ("ending", 409),
    /// The run is in another turn than the one that was named.
    OtherTurn => ("other_turn", 409),
    /// There is no event of that id yet: it is another log's.
    Ahead => ("ahead", 409),
    /// The request is larger than the route takes.
    TooLarge => ("too_large", 413),
    /// The input has mistakes; `mistakes` has them all.
    InvalidInput => ("invalid_input", 422),
    /// Something that herder did not expect went wrong; its log says more.
    Internal => ("internal", 500),
    /// The daemon is stopping, or not ready yet.
    Unavailable => ("unavailable", 503),
    /// The log takes or gives nothing.
    StoreUnavailable => ("store_unavailable", 503),
    /// There are too many connections.
    TooManyConnections => ("too_many_connections", 503),
}

impl ApiError {
    /// A refusal in one sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), mistakes: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_written_as_it_is_named() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).expect("JSON"), code.as_str());
        }
    }
}
