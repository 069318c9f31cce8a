//! One model request, as a task that reports back.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, stream::BoxStream};
use ractor::ActorRef;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{RunActor, RunMsg, RunState, judge};
use crate::{
    actor::{Live, LiveDelta, Services},
    domain::{
        call::{Failure, ToolCall, ToolResult},
        context,
        id::RunId,
        message,
        outcome::{FaultClass, Stop},
        run::{Input, Proposal},
        task::Params,
        time::Timestamp,
        usage::{Usage, estimated_tokens},
    },
    model::{Delta, Model, ModelError, ProposedCall, Request},
    telemetry::{metric, span},
    tool::workspace::Workspace,
};

/// Everything that a request and the judging of its answer need.
struct Asking {
    services: Arc<Services>,
    run: RunId,
    turn: u32,
    model: Arc<Model>,
    workspace: Arc<Workspace>,
    offered: Arc<[Arc<str>]>,
    cancel: CancellationToken,
    since: Instant,
    /// Bytes that the model is sent, for when it does not say how many tokens that was.
    bytes: usize,
}

/// The rest of an answer that is over.
type Rest = BoxStream<'static, Result<Delta, ModelError>>;

/// Bytes that an answer may have; more is a server that does not know when to stop.
const ANSWER_BYTES: usize = 16 << 20;

/// How long a connection has to finish an answer that is over, so that it can be used again: at most so long the run
/// waits for it, and at most so long in all.
const REST: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Sends the request of `turn` once `not_before` has come, and reports what came of it.
///
/// The report waits until the log has what led to the request: a run whose log takes nothing does not go on asking.
pub(super) fn spawn(
    actor: &RunActor,
    me: &ActorRef<RunMsg>,
    state: &RunState,
    turn: u32,
    attempt: u32,
    not_before: Timestamp,
    cancel: CancellationToken,
) {
    let Some(spec) = state.run.spec().cloned() else { return };
    let services = actor.services.clone();
    // The estimate of tokens is rough, and the answer needs room too.
    let budget = state.model.context_tokens.map(|window| window - window / 5);
    let projection = context::project(&spec, state.run.history(), state.run.history_bytes(), budget);
    let request = Request {
        model: state.model.wire_name.clone(),
        messages: projection.messages,
        tools: state.tools.specs.clone(),
        params: Params {
            max_tokens: spec.params.max_tokens.or(state.model.max_output_tokens),
            ..spec.params.clone()
        },
        script: spec.script.clone(),
        reply: usize::try_from(state.run.replies()).unwrap_or(usize::MAX),
    };
    let asking = Asking {
        run: state.run.id(),
        turn,
        model: state.model.clone(),
        workspace: state.workspace.clone(),
        cancel: cancel.clone(),
        services,
        offered: state.tools.names.clone(),
        since: Instant::now(),
        bytes: state.run.history_bytes() + spec.system.as_ref().map_or(0, |text| text.len()),
    };
    let led_here = state.progress.last;
    let wait = not_before.since(asking.services.clock.now());
    let me = me.clone();
    let store = actor.services.store.clone();
    let span = span::model_request(&asking.model.name, turn);
    let work = async move {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let asking = Asking { since: Instant::now(), ..asking };
        // Whatever panics here, a provider or herder, the run goes on with a retry.
        let asked = AssertUnwindSafe(asking.ask(request, attempt)).catch_unwind().await;
        let (input, mut rest) = asked.unwrap_or_else(|_| {
            let fault = error(FaultClass::Transient, "the model provider failed in a way that it should not");
            (failed(turn, attempt, fault), None)
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
            Ok(()) => me.cast(RunMsg::Report(input, None)),
            Err(error) => me.cast(RunMsg::StoreFailed(error)),
        };
        if let Some(rest) = rest.as_mut().filter(|_| !over) {
            let _ = tokio::time::timeout(REST.1, rest.next()).await;
        }
    };
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
    async fn ask(self, request: Request, attempt: u32) -> (Input, Option<Rest>) {
        let turn = self.turn;
        let answer = self.answer(request).await;
        let duration = self.since.elapsed();
        let outcome = answer.as_ref().err().map_or("ok", |error| error.class.as_str());
        metrics::counter!(metric::MODEL_REQUESTS, "class" => outcome).increment(1);
        metrics::histogram!(metric::MODEL_REQUEST_SECONDS).record(duration.as_secs_f64());
        match answer {
            Ok((answer, rest)) => {
                let proposal = Box::new(answer.judged(&self, duration).await);
                (Input::Replied { turn, attempt, proposal }, Some(rest))
            }
            Err(error) => (failed(turn, attempt, error), None),
        }
    }

    async fn answer(&self, request: Request) -> Result<(Answer, Rest), ModelError> {
        if let Err(fault) = message::validate(&request.messages) {
            return Err(error(FaultClass::Invalid, &format!("the conversation is not valid: {fault}")));
        }
        let settings = &self.services.settings;
        let mut deltas = self.model.provider.stream(request, self.cancel.clone());
        let mut answer = Answer::default();
        let mut first = true;
        loop {
            let silence = if first { settings.first_token.unwrap_or(settings.stall) } else { settings.stall };
            let Some(delta) = self.within(silence, deltas.next()).await? else {
                return Err(error(FaultClass::Transient, "the answer broke off"));
            };
            let delta = delta?;
            if std::mem::take(&mut first) {
                let waited = self.since.elapsed().as_secs_f64();
                metrics::histogram!(metric::MODEL_FIRST_TOKEN_SECONDS).record(waited);
            }
            self.show(&delta);
            if let Some(stop) = answer.take(delta) {
                answer.stop = Some(stop);
                return Ok((answer, deltas));
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
            Delta::Progress | Delta::Call(_) | Delta::Usage(_) | Delta::Stop(_) => return,
        };
        // Nobody may be watching any more.
        let _ = self.services.live.send(Live { run: self.run, turn: self.turn, what });
    }
}

/// An answer as it comes together.
#[derive(Default)]
struct Answer {
    text: String,
    reasoning: String,
    calls: Vec<ProposedCall>,
    /// Bytes of the calls.
    called: usize,
    usage: Option<Usage>,
    stop: Option<Stop>,
}

impl Answer {
    fn bytes(&self) -> usize {
        self.text.len() + self.reasoning.len() + self.called
    }

    fn take(&mut self, delta: Delta) -> Option<Stop> {
        match delta {
            Delta::Text(more) if self.text.is_empty() => self.text = more,
            Delta::Text(more) => self.text.push_str(&more),
            Delta::Reasoning(more) => self.reasoning.push_str(&more),
            Delta::Progress => {}
            Delta::Call(call) => {
                self.called += call.name.len() + call.arguments.len();
                self.calls.push(call);
            }
            Delta::Usage(usage) => self.usage = Some(usage),
            Delta::Stop(stop) => return Some(stop),
        }
        None
    }

    async fn judged(self, asking: &Asking, duration: Duration) -> Proposal {
        let judge = judge::Judge {
            services: asking.services.clone(),
            workspace: asking.workspace.clone(),
            offered: asking.offered.clone(),
        };
        let usage = self.used(asking);
        Proposal {
            text: self.text.into(),
            reasoning: (!self.reasoning.is_empty()).then(|| self.reasoning.into()),
            calls: judge.judge_all(self.calls).await,
            stop: self.stop.unwrap_or(Stop::Error),
            usage,
            duration,
        }
    }

    /// What the request used up, with its cost: as the server says, or as can be guessed. Of an answer that says nothing,
    /// not even that, nothing is guessed: it is no answer.
    fn used(&self, asking: &Asking) -> Option<Usage> {
        let guess = || Usage {
            input: estimated_tokens(asking.bytes),
            output: estimated_tokens(self.bytes()),
            estimated: true,
            ..Usage::default()
        };
        let usage = self.usage.or_else(|| (self.bytes() > 0).then(guess))?;
        Some(Usage { cost: asking.model.price.map(|price| price.of(&usage)), ..usage })
    }
}

fn failed(turn: u32, attempt: u32, error: ModelError) -> Input {
    let ModelError { class, message, retry_after } = error;
    Input::ModelFailed { turn, attempt, class, error: message, retry_after, jitter: jitter() }
}

fn error(class: FaultClass, message: &str) -> ModelError {
    ModelError { class, message: message.to_owned(), retry_after: None }
}

/// A number in `0.0..1.0` that spreads what would otherwise happen at the same time.
pub fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0_u8);
    #[expect(clippy::cast_precision_loss, reason = "53 bits are plenty to spread retries")]
    let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
    unit
}
