//! How the model is to sample, in the words of Messages.
//!
//! Takes the words of Chat Completions too, since tasks are written without regard to the server. Effort becomes a
//! budget, or goes out as it is where the settings have `thinking` of the type `adaptive`, as newer models want it. What
//! has no meaning here is refused, not passed over; a seed alone is left out, since it promises nothing.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{domain::task::Params, model::body};

/// Tokens that an answer may have where nobody says: as many as every model since Claude 3.5 can give.
const MAX_TOKENS: u32 = 8_192;

/// Tokens to think in, by how hard the model is to think. Of the limit, which every run sets, they take half at most;
/// only to [`MAX_TOKENS`], for a request without one, are they added. So they stay below it, as servers want.
const BUDGETS: &[(&str, u32)] =
    &[("none", 0), ("minimal", 1_024), ("low", 2_048), ("medium", 8_192), ("high", 16_384)];

/// Tokens that an answer without a limit may have on top where the model thinks as much as it sees fit.
const ADAPTIVE_ROOM: u32 = 16_384;

/// The least that servers accept; less is no thinking at all.
const LEAST_BUDGET: u32 = 1_024;

/// Why parameters can't be put in these words.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error("reasoning_effort {0:?} is none of none, minimal, low, medium, high")]
    Effort(String),
    #[error("tool_choice {0} is none of auto, none, required, or one function")]
    ToolChoice(Value),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// What of the conversation and the settings bears on thinking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    /// The model may begin to think here.
    pub(super) may_think: bool,
    pub(super) has_tools: bool,
    /// Fields of the settings.
    pub(super) extra: &'a Map<String, Value>,
}

/// Fields of a request.
#[derive(Debug, PartialEq)]
pub(super) struct Sampling<'a> {
    pub(super) max_tokens: u32,
    pub(super) thinking: Option<Thinking>,
    pub(super) output_config: Option<OutputConfig<'a>>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) tool_choice: Option<ToolChoice<'a>>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Thinking {
    Enabled { budget_tokens: u32 },
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct OutputConfig<'a> {
    effort: &'a str,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum ToolChoice<'a> {
    Auto,
    None,
    Any,
    Tool {
        name: &'a str,
    },
    /// An object in the words of Messages, with whatever options it has.
    #[serde(untagged)]
    AsItIs(&'a Value),
}

impl<'a> Sampling<'a> {
    pub(super) fn new(params: &'a Params, here: Circumstances<'_>) -> Result<Self, Unfit> {
        let tool_choice = params.tool_choice.as_ref().filter(|_| here.has_tools).map(choice).transpose()?;
        let set = here.extra.get("thinking");
        let adaptive = set.is_some_and(|set| set["type"] == "adaptive");
        let effort = params.reasoning_effort.as_deref();
        let wanted = effort.filter(|_| !adaptive).map(budget).transpose()?.unwrap_or_default();
        // A call that must be made can't be thought about first.
        let budget = if here.may_think && !tool_choice.as_ref().is_some_and(ToolChoice::forces) {
            params.max_tokens.map_or(wanted, |limit| wanted.min(limit / 2))
        } else {
            0
        };
        let thinking = (budget >= LEAST_BUDGET).then_some(Thinking::Enabled { budget_tokens: budget });
        let thinks = match set {
            Some(set) => !set.is_null() && set["type"] != "disabled",
            None => thinking.is_some(),
        };
        let room = match thinking {
            Some(Thinking::Enabled { budget_tokens }) => budget_tokens,
            None if adaptive => ADAPTIVE_ROOM,
            None => 0,
        };
        Ok(Self {
            max_tokens: params.max_tokens.unwrap_or(MAX_TOKENS + room),
            thinking,
            output_config: effort.filter(|_| adaptive).map(|effort| OutputConfig { effort }),
            // Who thinks samples as the server will.
            temperature: params.temperature.filter(|_| !thinks),
            top_p: params.top_p.filter(|_| !thinks),
            tool_choice,
        })
    }
}

impl ToolChoice<'_> {
    fn forces(&self) -> bool {
        match self {
            Self::Auto | Self::None => false,
            Self::Any | Self::Tool { .. } => true,
            Self::AsItIs(value) => value["type"] == "any" || value["type"] == "tool",
        }
    }
}

fn budget(effort: &str) -> Result<u32, Unfit> {
    let known = BUDGETS.iter().find(|(word, _)| *word == effort);
    known.map(|(_, budget)| *budget).ok_or_else(|| Unfit::Effort(effort.to_owned()))
}

fn choice(said: &Value) -> Result<ToolChoice<'_>, Unfit> {
    match body::ToolChoice::new(said) {
        body::ToolChoice::Auto => Ok(ToolChoice::Auto),
        body::ToolChoice::None => Ok(ToolChoice::None),
        body::ToolChoice::Required => Ok(ToolChoice::Any),
        body::ToolChoice::Tool(name) => Ok(ToolChoice::Tool { name }),
        body::ToolChoice::Other(Value::Object(fields))
            if fields.get("type").is_some_and(|kind| {
                ["auto", "none", "any", "tool"].contains(&kind.as_str().unwrap_or_default())
            }) =>
        {
            Ok(ToolChoice::AsItIs(said))
        }
        body::ToolChoice::Other(_) => Err(Unfit::ToolChoice(said.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn params(effort: &str) -> Params {
        Params {
            temperature: Some(0.5),
            top_p: Some(0.9),
            reasoning_effort: Some(effort.to_owned()),
            ..Params::default()
        }
    }

    /// The limit, the budget, and whether temperature and share are sent.
    fn sampled(params: &Params, may_think: bool, extra: &Value) -> (u32, Option<u32>, bool) {
        let here = Circumstances { may_think, has_tools: true, extra: extra.as_object().unwrap() };
        let sampling = Sampling::new(params, here).unwrap();
        assert_eq!(sampling.temperature.is_some(), sampling.top_p.is_some());
        let budget = sampling.thinking.map(|Thinking::Enabled { budget_tokens }| budget_tokens);
        (sampling.max_tokens, budget, sampling.temperature.is_some())
    }

    #[test]
    fn thinking_has_its_own_room_or_half_of_what_is_set() {
        let none = json!({});
        assert_eq!(sampled(&params("low"), true, &none), (10_240, Some(2_048), false));
        assert_eq!(sampled(&params("high"), true, &none), (24_576, Some(16_384), false));
        assert_eq!(sampled(&params("none"), true, &none), (8_192, None, true));
        let limited = |max_tokens| Params { max_tokens: Some(max_tokens), ..params("medium") };
        assert_eq!(sampled(&limited(20_000), true, &none), (20_000, Some(8_192), false));
        assert_eq!(sampled(&limited(4_000), true, &none), (4_000, Some(2_000), false));
        assert_eq!(sampled(&limited(2_000), true, &none), (2_000, None, true));
    }

    #[test]
    fn nothing_is_thought_where_it_can_not_begin_or_a_call_is_forced() {
        let none = json!({});
        assert_eq!(sampled(&params("low"), false, &none), (8_192, None, true));
        for forced in [json!("required"), json!({"type": "tool", "name": "read"})] {
            let params = Params { tool_choice: Some(forced), ..params("low") };
            assert_eq!(sampled(&params, true, &none), (8_192, None, true));
        }
    }

    #[test]
    fn settings_that_turn_thinking_on_or_off_count() {
        assert!(!sampled(&params("none"), true, &json!({"thinking": {"type": "adaptive"}})).2);
        for off in [json!(null), json!({"type": "disabled"})] {
            assert!(sampled(&params("low"), true, &json!({"thinking": off})).2);
        }
    }

    #[test]
    fn a_model_that_thinks_as_it_sees_fit_is_told_the_effort_in_its_own_words() {
        let extra = json!({"thinking": {"type": "adaptive"}});
        let here = Circumstances { may_think: false, has_tools: true, extra: extra.as_object().unwrap() };
        let params = params("xhigh");
        let expected = Sampling {
            max_tokens: 24_576,
            thinking: None,
            output_config: Some(OutputConfig { effort: "xhigh" }),
            temperature: None,
            top_p: None,
            tool_choice: None,
        };
        assert_eq!(Sampling::new(&params, here).unwrap(), expected);
    }

    #[test]
    fn a_choice_of_tools_is_taken_in_the_words_of_either_protocol() {
        let table = [
            (json!("auto"), json!({"type": "auto"})),
            (json!("none"), json!({"type": "none"})),
            (json!("required"), json!({"type": "any"})),
            (
                json!({"type": "function", "function": {"name": "read"}}),
                json!({"type": "tool", "name": "read"}),
            ),
            (json!({"type": "function", "name": "read"}), json!({"type": "tool", "name": "read"})),
            (
                json!({"type": "auto", "disable_parallel_tool_use": true}),
                json!({"type": "auto", "disable_parallel_tool_use": true}),
            ),
        ];
        for (said, sent) in table {
            assert_eq!(serde_json::to_value(choice(&said).unwrap()).unwrap(), sent);
        }
        for wrong in [json!("always"), json!({"type": "function"}), json!(7)] {
            assert!(matches!(choice(&wrong), Err(Unfit::ToolChoice(_))), "{wrong}");
        }
        assert!(matches!(budget("extreme"), Err(Unfit::Effort(_))));
    }
}
