//! One model request, as a task that reports back.
//!
//! A request waits for its place at the governor, is sent, and is heard to its end. A place is kept while the same turn
//! waits to ask again: it is given back with the report, and handed to the next request.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, stream::BoxStream};
use ractor::ActorRef;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    Offer, RunActor, RunMsg, RunState,
    answer::Answer,
    hold::Departure,
    judge::Judge,
    purse::{Denied, Held, Purse},
};
use crate::{
    actor::{Live, LiveDelta, Services},
    crash::{self, Point},
    domain::{
        call::{Failure, ToolCall, ToolResult},
        event::ParkReason,
        id::RunId,
        message::{self, RequestRecord},
        outcome::FaultClass,
        run::{Input, Proposal},
        time::Timestamp,
        usage::NanoUsd,
    },
    model::{
        Delta, Model, ModelError, Request,
        governor::{Permit, Pledge},
    },
    telemetry::{metric, span},
};

/// Everything that a request needs.
pub(super) struct Asking {
    pub(super) services: Arc<Services>,
    pub(super) run: RunId,
    pub(super) turn: u32,
    pub(super) attempt: u32,
    pub(super) model: Arc<Model>,
    pub(super) judge: Judge,
    pub(super) cancel: CancellationToken,
    pub(super) since: Instant,
    /// Bytes that the model is sent, for when it does not say how many tokens that was.
    pub(super) bytes: usize,
    pub(super) record: RequestRecord,
    pub(super) tools: Offer,
    pub(super) departure: Departure,
    /// Whether another model can go on, so that nobody need wait for the account to open.
    pub(super) has_fallback: bool,
    /// Tokens that the answer may have, once that is known, and whether they fit the window with what is sent.
    pub(super) allowed: Option<u32>,
    pub(super) fits: bool,
}

/// What came of a request, and what goes on with it.
struct Asked {
    input: Input,
    /// Kept for the turn's next request, if there is one.
    permit: Option<Permit>,
    /// The rest of an answer that is over.
    rest: Option<BoxStream<'static, Result<Delta, ModelError>>>,
}

/// Bytes that an answer may have; more is a server that does not know when to stop.
const ANSWER_BYTES: usize = 16 << 20;

/// How long a connection has to finish an answer that is over, so that it can be used again: at most so long the run
/// waits for it, and at most so long in all.
const REST: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How long a request keeps its place while it waits for money.
const MONEY: Duration = Duration::from_millis(100);

/// Sends the request of `turn` once `not_before` has come, and reports what came of it.
///
/// The report waits until the log has what led to the request: a run whose log takes nothing does not go on asking.
pub(super) fn spawn(
    actor: &RunActor,
    me: &ActorRef<RunMsg>,
    state: &mut RunState,
    turn: u32,
    attempt: u32,
    not_before: Timestamp,
    cancel: CancellationToken,
) {
    let Some(spec) = state.run.spec().cloned() else { return };
    let services = actor.services.clone();
    // The estimate of tokens is rough, and the answer needs room too.
    let budget = state.model.context_tokens.map(|window| window - window / 5);
    let projection = state.run.projection(budget);
    let purse = Purse::of(actor, me, state, &spec);
    let record = RequestRecord {
        model: state.model.wire_name.clone(),
        digest: None,
        included: projection.included as u64,
        omitted: projection.omitted as u64,
        max_tokens: None,
        tools: None,
    };
    let request = Request {
        model: state.model.wire_name.clone(),
        messages: projection.messages,
        tools: state.tools.specs.clone(),
        params: spec.params.clone(),
        response_format: spec.response_format.clone(),
        script: spec.script.clone(),
        reply: usize::try_from(state.run.replies()).unwrap_or(usize::MAX),
    };
    let asking = Asking {
        run: state.run.id(),
        turn,
        attempt,
        model: state.model.clone(),
        judge: Judge {
            services: services.clone(),
            workspace: state.workspace.clone(),
            offered: state.tools.names.clone(),
            form: state.form.clone(),
            grants: state.run.grants().cloned().collect(),
        },
        cancel: cancel.clone(),
        services: services.clone(),
        since: Instant::now(),
        bytes: projection.bytes,
        record,
        tools: state.tools.clone(),
        departure: Departure::from(not_before.max(services.clock.now())),
        has_fallback: actor.fallback(state).is_some(),
        allowed: None,
        fits: purse.fits(),
    };
    state.progress.departure = Some(asking.departure.clone());
    let bytes = asking.bytes;
    let led_here = state.progress.last;
    let (permit, pledge) = (state.progress.permit.take(), state.progress.pledge.take());
    let wait = not_before.since(asking.services.clock.now());
    let (me, store) = (me.clone(), actor.services.store.clone());
    let span = span::model_request(&asking.model.name, turn);
    // Boxed: it is large, and would be moved at every step of its way to where it runs.
    let work = Box::pin(async move {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        // Whatever panics here, a provider or herder, the run goes on with a retry.
        let asked = AssertUnwindSafe(asking.ask(request, purse, permit, pledge)).catch_unwind().await;
        let Asked { input, permit, mut rest } = asked.unwrap_or_else(|_| {
            let fault = error(FaultClass::Transient, "the model provider failed in a way that it should not");
            Asked { input: failed(turn, attempt, bytes, fault), permit: None, rest: None }
        });
        let over = match &mut rest {
            Some(rest) => tokio::time::timeout(REST.0, rest.next()).await.is_ok(),
            None => true,
        };
        let stored = match led_here {
            Some(ticket) => store.durable(ticket).await,
            None => Ok(()),
        };
        // The run may have ended meanwhile.
        let _ = match stored {
            Ok(()) => me.cast(RunMsg::Asked(input, permit)),
            Err(error) => me.cast(RunMsg::StoreFailed(error)),
        };
        if let Some(rest) = rest.as_mut().filter(|_| !over) {
            let _ = tokio::time::timeout(REST.1, rest.next()).await;
        }
    });
    // Whoever cancels does not want to know; a provider that does not heed it is dropped.
    tokio::spawn(async move { cancel.run_until_cancelled_owned(work).await }.instrument(span));
}

/// A call of a tool that this process does not have is answered at once.
pub(super) fn tool_is_gone(me: &ActorRef<RunMsg>, call: &ToolCall) {
    let result = ToolResult {
        call: call.id.clone(),
        ok: false,
        output: format!("no tool named {} is registered any more", call.name).into(),
        failure: Some(Failure::UnknownTool),
        terminate: false,
        timing: None,
    };
    let _ = me.cast(RunMsg::Report(Input::CallEnded(result), None));
}

impl Asking {
    async fn ask(
        mut self,
        mut request: Request,
        mut purse: Purse,
        permit: Option<Permit>,
        pledge: Option<Pledge>,
    ) -> Asked {
        let (turn, attempt) = (self.turn, self.attempt);
        if let Err(fault) = message::validate(&request.messages) {
            let fault = error(FaultClass::Invalid, &format!("the conversation is not valid: {fault}"));
            return Asked { input: failed(turn, attempt, 0, fault), permit: None, rest: None };
        }
        if let Err(denied) = purse.fit() {
            return Asked { input: denied.input(turn, attempt), permit: None, rest: None };
        }
        // It waits for its place now, which counts as much.
        drop(pledge);
        let (mut permit, mut held) = match self.prepare(&mut purse, permit).await {
            Ok(prepared) => prepared,
            Err(input) => return Asked { input, permit: None, rest: None },
        };
        if !self.departure.depart(self.services.clock.now()) {
            // It was called off, and whoever did so ends this task.
            return std::future::pending().await;
        }
        self.allowed = Some(purse.ask.max_tokens);
        self.fits = purse.fits();
        request.params.max_tokens = self.allowed;
        self.record.max_tokens = request.params.max_tokens;
        let most = purse.counted();
        purse.depart(&mut held, turn, attempt).await;
        self.since = Instant::now();
        crash::point(Point::BeforeRequest);
        let mut deltas = self.model.provider.stream(request, self.cancel.clone());
        let mut answer = Answer::default();
        let mut heard = self.hear(&mut deltas, &mut answer, &mut permit).await;
        let usage = answer.used(&self.model, self.bytes, most);
        if heard.is_ok() && usage.is_none() && most.is_some() && answer.is_empty() {
            heard = Err(error(FaultClass::Transient, "the model's answer was empty"));
        }
        crash::point(Point::AfterRequest);
        let duration = self.since.elapsed();
        self.record.digest = answer.digest.take();
        self.record.tools = self.record.digest.as_ref().and_then(|_| self.tools.digest());
        let outcome = heard.as_ref().err().map_or("ok", |error| error.class.as_str());
        metrics::counter!(metric::MODEL_REQUESTS, "class" => outcome).increment(1);
        metrics::histogram!(metric::MODEL_REQUEST_SECONDS).record(duration.as_secs_f64());
        match heard {
            Ok(()) => {
                let usage = usage.or(most);
                held.settle(usage.and_then(|usage| usage.cost));
                permit.answered(usage.map_or(0, |usage| usage.total()));
                let waited = self.departure.waited(self.services.clock.now());
                let proposal = answer.judged(&self.judge, self.record, usage, duration).await;
                let proposal = Proposal { waited, ..proposal };
                let input = Input::Replied { turn, attempt, proposal: Box::new(proposal) };
                Asked { input, permit: None, rest: Some(deltas) }
            }
            Err(error) => {
                permit.failed(error.class, error.retry_after);
                // One that was turned away costs nothing; of any other nobody knows unless the server has said so.
                let told = answer.told(&self.model);
                let usage = told.or(most).filter(|_| !error.refused);
                let cost = told.and_then(|usage| usage.cost);
                held.settle(if error.refused { Some(NanoUsd::default()) } else { cost });
                Asked { input: self.failed(error, usage), permit: Some(permit), rest: None }
            }
        }
    }

    /// Waits for a place, for the money, and until the request may go out.
    async fn prepare(&self, purse: &mut Purse, permit: Option<Permit>) -> Result<(Permit, Held), Input> {
        let mut permit = self.place(permit).await?;
        let mut reserving = std::pin::pin!(purse.reserve());
        let reserved = match timeout(MONEY, &mut reserving).await {
            Ok(reserved) => reserved,
            Err(_) => {
                // While others settle, somebody whose money is there may have the place.
                drop(permit);
                let reserved = reserving.await;
                permit = self.place(None).await?;
                reserved
            }
        };
        let held = reserved.map_err(|denied| denied.input(self.turn, self.attempt))?;
        self.clear(&mut permit).await?;
        Ok((permit, held))
    }

    /// Hears the answer to its end.
    async fn hear(
        &self,
        deltas: &mut BoxStream<'static, Result<Delta, ModelError>>,
        answer: &mut Answer,
        permit: &mut Permit,
    ) -> Result<(), ModelError> {
        let settings = &self.services.settings;
        let mut first = true;
        loop {
            let silence = if first { settings.first_token.unwrap_or(settings.stall) } else { settings.stall };
            let Some(delta) = self.within(silence, deltas.next()).await? else {
                return Err(error(FaultClass::Transient, "the answer broke off"));
            };
            let delta = delta?;
            if let Delta::RateLimits(rates) = &delta {
                permit.told(rates);
            }
            let is_word = !matches!(delta, Delta::Sent(_) | Delta::RateLimits(_));
            if is_word && std::mem::take(&mut first) {
                let waited = self.since.elapsed();
                permit.first_token(waited);
                metrics::histogram!(metric::MODEL_FIRST_TOKEN_SECONDS).record(waited.as_secs_f64());
            }
            self.show(&delta);
            if answer.take(delta) {
                return Ok(());
            }
            if answer.bytes() > ANSWER_BYTES {
                return Err(error(FaultClass::Invalid, "the answer is longer than 16 MiB"));
            }
        }
    }

    /// Waits for the model's next word for as long as it may be silent and the request may take.
    async fn within<T>(&self, silence: Duration, word: impl Future<Output = T>) -> Result<T, ModelError> {
        let settings = &self.services.settings;
        let now = Instant::now();
        let end = self.since + settings.turn;
        let limit = end.min(now + silence);
        let mut word = std::pin::pin!(word);
        if now + settings.stall_warn < limit {
            if let Ok(word) = timeout_at(now + settings.stall_warn, &mut word).await {
                return Ok(word);
            }
            tracing::warn!(run.id = %self.run, seconds = settings.stall_warn.as_secs(), "the model is silent");
        }
        timeout_at(limit, word).await.map_err(|_| {
            if limit == end {
                let message = format!("no whole answer within {} s", settings.turn.as_secs());
                error(FaultClass::Timeout, &message)
            } else {
                error(FaultClass::Stall, &format!("the model said nothing for {} s", silence.as_secs()))
            }
        })
    }

    /// Shows what comes to whoever watches.
    fn show(&self, delta: &Delta) {
        if self.services.live.receiver_count() == 0 {
            return;
        }
        let what = match delta {
            Delta::Text(text) => LiveDelta::Text(text.as_str().into()),
            Delta::Reasoning(text) => LiveDelta::Reasoning(text.as_str().into()),
            Delta::Sent(_)
            | Delta::RateLimits(_)
            | Delta::Keep(_)
            | Delta::Progress
            | Delta::Call(_)
            | Delta::Usage(_)
            | Delta::Stop(_) => return,
        };
        // Nobody may be watching any more.
        let _ = self.services.live.send(Live { run: self.run, turn: self.turn, what });
    }
}

/// A fault of herder's own.
fn failed(turn: u32, attempt: u32, shown: usize, error: ModelError) -> Input {
    let ModelError { class, message, retry_after, refused: _, key_refused: _ } = error;
    Input::ModelFailed {
        turn,
        attempt,
        class,
        error: message,
        retry_after,
        usage: None,
        waited: Duration::ZERO,
        shown,
        allowed: None,
        fits: false,
        parks: None,
        fallback: None,
        jitter: jitter(),
    }
}

impl Denied {
    fn input(self, turn: u32, attempt: u32) -> Input {
        match self {
            Self::Limit(limit) => Input::OutOfBudget { turn, attempt, limit },
            Self::NotBegun => Input::Park(ParkReason::Budget),
        }
    }
}

pub(super) fn error(class: FaultClass, message: &str) -> ModelError {
    ModelError::new(class, message)
}

/// A number in `0.0..1.0` that spreads what would otherwise happen at the same time.
pub fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0_u8);
    #[expect(clippy::cast_precision_loss, reason = "53 bits are plenty to spread retries")]
    let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
    unit
}
