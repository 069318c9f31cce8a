//! Asks a model what it can do, with three small requests, and says in plain words what works.
//!
//! Bounded in time; dropping it ends the request that is out. Knows a model by its provider's trait alone, so it checks
//! what runs will meet, and nothing else. Prints nothing.

mod hear;
mod words;

use std::{ops::AddAssign as _, time::Duration};

use serde::Serialize;
use tokio::time::Instant;

use crate::{config, domain::usage::Usage, model::Model};
use hear::{Heard, Question};

/// Something that a model was checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// There is a server.
    Server,
    /// It takes the key.
    Key,
    /// It answers in words.
    Text,
    /// The words come as they are found.
    Streaming,
    /// It asks for calls.
    Tools,
    /// It takes what came of them.
    FollowUp,
    /// It says why it stopped.
    Stop,
    /// It says what was used up.
    Usage,
    /// It thinks aloud.
    Reasoning,
    /// It says how much may be asked.
    RateLimits,
    /// What the check cost.
    Cost,
}

/// How it stands with an aspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    Ok,
    /// Runs work without it, if less well.
    Missing,
    Failed,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub what: Aspect,
    pub state: Standing,
    /// What was seen, and what to do about it, in one sentence.
    pub says: String,
}

impl Finding {
    fn ok(what: Aspect, says: impl Into<String>) -> Self {
        Self { what, state: Standing::Ok, says: says.into() }
    }

    fn missing(what: Aspect, says: impl Into<String>) -> Self {
        Self { what, state: Standing::Missing, says: says.into() }
    }

    fn failed(what: Aspect, says: impl Into<String>) -> Self {
        Self { what, state: Standing::Failed, says: says.into() }
    }
}

/// Checks a model, and tells each finding as it is made. True: nothing failed.
pub async fn check(
    model: &Model,
    settings: &config::Model,
    limit: Duration,
    tell: &mut (dyn FnMut(Finding) + Send),
) -> bool {
    let until = Instant::now() + limit;
    let ask = |question| hear::ask(model, question, until);
    let words = ask(Question::Words).await;
    let mut works = true;
    let mut told = |findings: Vec<Finding>| {
        for finding in findings {
            works &= finding.state != Standing::Failed;
            tell(finding);
        }
    };
    told(words::greeting(&words, settings, limit));
    if words.stop.is_none() {
        return works;
    }
    let call = ask(Question::Call).await;
    told(vec![words::tools(&call, limit)]);
    let result = match call.valid_call() {
        Ok(proposed) => Some(ask(Question::Result { call: &call, proposed }).await),
        Err(_) => None,
    };
    if let Some(result) = &result {
        told(vec![words::follow_up(result, &call, settings, limit)]);
    }
    let all: Vec<&Heard> = [&words, &call].into_iter().chain(&result).collect();
    told(vec![words::stop(&words, &call), words::usage(&all)]);
    told(words::reasoning(&all, result.as_ref(), settings).into_iter().collect());
    told(vec![words::rate_limits(&all), words::cost(sum(&all), model.price)]);
    works
}

/// All that was used up, if each answer said so.
fn sum(all: &[&Heard]) -> Option<Usage> {
    let answered = all.iter().filter(|heard| heard.stop.is_some());
    answered.map(|heard| heard.usage).try_fold(Usage::default(), |mut sum, usage| {
        sum.add_assign(usage?);
        Some(sum)
    })
}
