//! What was seen of a model, in sentences that say what to do about it.

use std::{borrow::Cow, time::Duration};

use super::{Aspect, Finding, hear::Heard};
use crate::{
    config::{self, Key, Provider, Reasoning, TokenLimit},
    domain::{
        outcome::{FaultClass, Stop},
        text::bare_url,
        usage::{Price, Usage},
    },
    model::{ModelError, RateLimits, governor::Window},
};

/// Characters of an error that a line quotes.
const QUOTED: usize = 120;

/// Of the first answer: the server, its key, its words.
pub(super) fn greeting(words: &Heard, settings: &config::Model, limit: Duration) -> Vec<Finding> {
    let address = settings.base_url.as_deref().map_or(Cow::Borrowed("the server"), bare_url);
    if let Some(error) = words.error.as_ref().filter(|error| is_unreached(error)) {
        let says = format!(
            "nothing answers at {address}: {}; see that the server runs and that base_url is right",
            said(error)
        );
        return vec![Finding::failed(Aspect::Server, says)];
    }
    if words.is_late && words.pieces == 0 && words.limits.is_none() {
        return vec![Finding::failed(Aspect::Server, format!("{address}: {}", late(limit)))];
    }
    let mut findings = vec![Finding::ok(Aspect::Server, format!("{address} answers"))];
    let refused = words.error.as_ref().filter(|error| error.class == FaultClass::Auth);
    findings.push(match (refused, &settings.key) {
        (Some(error), key) => Finding::failed(Aspect::Key, denied(error, key)),
        (None, _) if words.stop.is_none() => return [findings, vec![text(words, settings, limit)]].concat(),
        (None, Key::Found(_)) => Finding::ok(Aspect::Key, "the key is accepted"),
        (None, Key::None | Key::Missing(_)) => Finding::ok(Aspect::Key, "no key is wanted"),
    });
    if refused.is_none() {
        findings.push(text(words, settings, limit));
        findings.extend(streaming(words));
    }
    findings
}

/// Whether the connection itself failed. A status, or anything else that came, is a sign of a server.
fn is_unreached(error: &ModelError) -> bool {
    error.refused && !has_status(error) && matches!(error.class, FaultClass::Transient | FaultClass::Timeout)
}

fn has_status(error: &ModelError) -> bool {
    error.message.starts_with("HTTP ")
}

/// Of a request that was not allowed: whether it is the key's fault, only if the server says so.
fn denied(error: &ModelError, key: &Key) -> String {
    let message = error.message.to_lowercase();
    let is_the_key = message.starts_with("http 401")
        || ["key", "token", "auth", "credential"].iter().any(|word| message.contains(word));
    let error = said(error);
    match (is_the_key, key) {
        (true, Key::Found(_)) => format!(
            "the server refuses the key: {error}; see that it is the right one, and allowed to ask this model"
        ),
        (true, Key::None | Key::Missing(_)) => {
            format!("the server wants a key: {error}; name it by api_key_env or api_key_file")
        }
        (false, Key::Found(_)) => format!(
            "the server refuses the request: {error}; see that the key's account may ask this model from here"
        ),
        (false, Key::None | Key::Missing(_)) => {
            format!("the server refuses the request: {error}; it does not say that a key would help")
        }
    }
}

/// What an error says, without the rest of a long page.
fn said(error: &ModelError) -> String {
    let mut says = error.to_string();
    if let Some((cut, _)) = says.char_indices().nth(QUOTED) {
        says.truncate(cut);
        says.push('…');
    }
    says
}

fn text(words: &Heard, settings: &config::Model, limit: Duration) -> Finding {
    if let Some(error) = &words.error {
        let broke_off = if words.pieces > 0 { "the answer broke off: " } else { "" };
        return Finding::failed(
            Aspect::Text,
            format!("{broke_off}{}; {}", said(error), remedy(error, settings)),
        );
    }
    if words.is_late {
        return Finding::failed(Aspect::Text, late(limit));
    }
    match words.text.split_whitespace().count() {
        _ if words.stop == Some(Stop::Refusal) => Finding::failed(
            Aspect::Text,
            "the model, or a filter before it, declined to count to thirty; see what the server's filters are set to",
        ),
        0 if words.stop == Some(Stop::Length) => Finding::failed(
            Aspect::Text,
            "it thought until its answer was cut and said nothing; give its answers more room, or have it think less by \
             reasoning_effort",
        ),
        0 => Finding::failed(Aspect::Text, "it said nothing; see that `model` names one that talks"),
        count => Finding::ok(Aspect::Text, format!("it answers in words ({count} in {})", time(words.took))),
    }
}

fn remedy(error: &ModelError, settings: &config::Model) -> String {
    let said = |word: &str| error.message.contains(word);
    match error.class {
        FaultClass::Invalid if said("max_tokens") || said("max_completion_tokens") => {
            let other = match settings.token_limit {
                TokenLimit::MaxTokens => "max_completion_tokens",
                TokenLimit::MaxCompletionTokens => "max_tokens",
            };
            format!("set token_limit = \"{other}\"")
        }
        FaultClass::Transient if said("content type") => {
            let is_versioned =
                settings.base_url.as_deref().is_some_and(|url| url.trim_end_matches('/').ends_with("/v1"));
            match settings.provider {
                Provider::Openai | Provider::Responses if !is_versioned => {
                    "that is no answer of the API; base_url usually ends in /v1".to_owned()
                }
                Provider::Openai | Provider::Responses | Provider::Anthropic | Provider::Scripted => {
                    "that is no answer of the API; see that base_url is its address".to_owned()
                }
            }
        }
        FaultClass::Invalid if said("redirects") => "set base_url to where the API really is".to_owned(),
        FaultClass::Invalid => {
            "see that `model` is a name that the server knows, and that base_url is right".to_owned()
        }
        FaultClass::Quota => "add money or quota to the account".to_owned(),
        FaultClass::RateLimit => "ask again later, and set requests_per_minute if it stays so".to_owned(),
        FaultClass::ContextOverflow => "the model's window is too small to be of use".to_owned(),
        FaultClass::Auth => "see that the key is right".to_owned(),
        FaultClass::Overloaded
        | FaultClass::Transient
        | FaultClass::Timeout
        | FaultClass::Stall
        | FaultClass::Cancelled => {
            "ask again; if it stays so, the server, or what lies before it, is at fault".to_owned()
        }
    }
}

fn streaming(words: &Heard) -> Option<Finding> {
    let first = time(words.first?);
    words.error.is_none().then(|| match words.pieces {
        1 => Finding::missing(
            Aspect::Streaming,
            format!(
                "the whole answer came in one piece after {first}; runs work, but show no progress, and stall_s must be \
                 longer than any answer takes"
            ),
        ),
        pieces => Finding::ok(Aspect::Streaming, format!("{pieces} pieces, the first after {first}")),
    })
}

/// Of the second answer: whether the call came.
pub(super) fn tools(call: &Heard, limit: Duration) -> Finding {
    if let Some(error) = &call.error {
        let says = format!(
            "a request with a tool failed: {}; offer this model no tools (tools = []) if it stays so",
            said(error)
        );
        return Finding::failed(Aspect::Tools, says);
    }
    if call.is_late {
        return Finding::failed(Aspect::Tools, late(limit));
    }
    match (call.valid_call(), call.calls.is_empty()) {
        (Ok(_), _) => Finding::ok(Aspect::Tools, "a call with valid arguments came"),
        (Err(_), true) => Finding::missing(
            Aspect::Tools,
            "it did not call the tool that it was told to; see that the server has tools switched on for this model",
        ),
        (Err(what), false) => Finding::failed(
            Aspect::Tools,
            format!("a call came, but {what}; runs tell it so, yet another model may be better at tools"),
        ),
    }
}

/// Of the third answer: whether the call's result was taken.
pub(super) fn follow_up(result: &Heard, call: &Heard, settings: &config::Model, limit: Duration) -> Finding {
    if let Some(error) = &result.error {
        let advice = match (sends_back(settings), call.reasoning.is_empty()) {
            (Some(Reasoning::Never), false) => {
                "set reasoning = \"reasoning_content\", or \"reasoning\", if it wants its thoughts back"
            }
            (Some(Reasoning::ReasoningContent | Reasoning::Reasoning), _) => {
                "set reasoning = \"never\" if it wants no thoughts back"
            }
            (Some(Reasoning::Never), true) | (None, _) => "runs with tools will fail so, too",
        };
        return Finding::failed(
            Aspect::FollowUp,
            format!("the call's result was refused: {}; {advice}", said(error)),
        );
    }
    if result.is_late {
        return Finding::failed(Aspect::FollowUp, late(limit));
    }
    let used = if result.has_result() { "accepted, and used" } else { "accepted, though not used" };
    Finding::ok(Aspect::FollowUp, format!("the call's result was {used}"))
}

/// Why the answers stopped, by what they said themselves.
pub(super) fn stop(words: &Heard, call: &Heard) -> Finding {
    let name = |heard: &Heard| heard.stop.map_or("nothing", Stop::as_str);
    if words.stop == Some(Stop::EndTurn) && words.text.trim().is_empty() {
        return Finding::failed(
            Aspect::Stop,
            "end_turn, though it had said nothing; runs would end so, without an answer",
        );
    }
    let odd = match (words.stop, call.calls.is_empty(), call.stop) {
        (Some(Stop::EndTurn), true, _) => return Finding::ok(Aspect::Stop, "end_turn after words"),
        (Some(Stop::EndTurn), false, Some(Stop::ToolCalls)) => {
            return Finding::ok(Aspect::Stop, "end_turn after words, tool_calls after a call");
        }
        (Some(Stop::EndTurn), false, _) => format!("{} after a call, where tool_calls was due", name(call)),
        (Some(Stop::Length), ..) => {
            let says = "length after words: a short answer was cut; raise max_output_tokens, or see why it says so much";
            return Finding::missing(Aspect::Stop, says);
        }
        (Some(Stop::Refusal), ..) => {
            return Finding::failed(
                Aspect::Stop,
                "its answer was declined, or cut by a filter; runs end as blocked",
            );
        }
        (Some(Stop::ToolCalls | Stop::Error) | None, ..) => {
            format!("{} after words, where end_turn was due", name(words))
        }
    };
    Finding::failed(Aspect::Stop, format!("{odd}; runs may end too early or not as they should"))
}

pub(super) fn usage(all: &[&Heard]) -> Finding {
    let told: Vec<Usage> = all.iter().filter_map(|heard| heard.usage).collect();
    let answers = all.iter().filter(|heard| heard.stop.is_some()).count();
    if told.len() < answers {
        let says = "tokens are not told, or not always; herder estimates them, and limits of tokens and money are only as good";
        return Finding::missing(Aspect::Usage, says);
    }
    let (input, output) = told
        .iter()
        .fold((0_u64, 0_u64), |(input, output), usage| (input + usage.input, output + usage.output));
    Finding::ok(Aspect::Usage, format!("{input} tokens in, {output} out"))
}

pub(super) fn reasoning(all: &[&Heard], result: Option<&Heard>, settings: &config::Model) -> Option<Finding> {
    if all.iter().all(|heard| heard.reasoning.is_empty()) {
        return None;
    }
    let says = match (sends_back(settings), result.map(|result| result.error.is_none())) {
        (Some(Reasoning::Never), Some(true)) => {
            "it thinks aloud, and does not need its thoughts back after a call"
        }
        (Some(Reasoning::Never), Some(false)) => {
            "it thinks aloud, and may need its thoughts back: set reasoning = \"reasoning_content\""
        }
        (Some(Reasoning::Never), None) => "it thinks aloud; whether it needs its thoughts back did not show",
        (Some(Reasoning::ReasoningContent | Reasoning::Reasoning) | None, _) => {
            "it thinks aloud, and is given its thoughts back after a call"
        }
    };
    Some(Finding::ok(Aspect::Reasoning, says))
}

/// Whether thoughts are sent back, where that is a question of settings and not of the protocol.
const fn sends_back(settings: &config::Model) -> Option<Reasoning> {
    match settings.provider {
        Provider::Openai => Some(settings.reasoning),
        Provider::Anthropic | Provider::Responses | Provider::Scripted => None,
    }
}

pub(super) fn rate_limits(all: &[&Heard]) -> Finding {
    let Some(RateLimits { requests, tokens }) = all.iter().find_map(|heard| heard.limits) else {
        let says = "no header tells them; how many requests go at once is found by trial, or set by requests_per_minute and \
                    tokens_per_minute";
        return Finding::missing(Aspect::RateLimits, says);
    };
    let window = |window: Option<Window>, what: &str| {
        let Window { limit, remaining, .. } = window?;
        let of = limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        remaining.map(|remaining| format!("{remaining}{of} {what} are left"))
    };
    let told: Vec<String> =
        [window(requests, "requests"), window(tokens, "tokens")].into_iter().flatten().collect();
    let told = if told.is_empty() { "headers tell them".to_owned() } else { told.join(", ") };
    Finding::ok(Aspect::RateLimits, told)
}

pub(super) fn cost(usage: Option<Usage>, price: Option<Price>) -> Finding {
    match (usage, price) {
        (_, Some(price)) if price == Price::default() => {
            Finding::ok(Aspect::Cost, "nothing: the model is free")
        }
        (Some(usage), Some(price)) => {
            Finding::ok(Aspect::Cost, format!("${:.6} for this check", price.of(&usage).usd()))
        }
        (None, Some(_)) => Finding::missing(Aspect::Cost, "prices are known, but not what was used"),
        (_, None) => Finding::missing(
            Aspect::Cost,
            "prices are not known; set input_usd_per_mtok and output_usd_per_mtok, or free = true",
        ),
    }
}

fn late(limit: Duration) -> String {
    format!(
        "no whole answer within {} s; give it more time by --timeout, if it is there and slow",
        limit.as_secs()
    )
}

fn time(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
