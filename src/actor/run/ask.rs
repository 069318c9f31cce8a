//! One model request, as a task that reports back.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt};
use ractor::ActorRef;
use tokio_util::sync::CancellationToken;

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
        time::Timestamp,
        usage::Usage,
    },
    model::{Delta, Model, ModelError, ProposedCall, Request},
    telemetry::metric,
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
    request: Request,
    cancel: CancellationToken,
}

/// Sends the request of `turn` once `not_before` has come, and reports what came of it.
pub(super) fn spawn(
    actor: &RunActor,
    me: &ActorRef<RunMsg>,
    state: &RunState,
    turn: u32,
    attempt: u32,
    not_before: Timestamp,
) {
    let Some(spec) = state.run.spec().cloned() else { return };
    let services = actor.services.clone();
    let projection =
        context::project(&spec, state.run.history(), state.run.history_bytes(), state.model.context_tokens);
    let request = Request {
        model: state.model.wire_name.clone(),
        messages: projection.messages,
        tools: state.tools.specs.clone(),
        params: spec.params.clone(),
        script: spec.script.clone(),
        reply: usize::try_from(state.run.replies()).unwrap_or(usize::MAX),
    };
    let asking = Asking {
        run: state.run.id(),
        turn,
        model: state.model.clone(),
        workspace: state.workspace.clone(),
        cancel: actor.cancel.child_token(),
        services,
        offered: state.tools.names.clone(),
        request,
    };
    let wait = not_before.since(asking.services.clock.now());
    let me = me.clone();
    let cancel = asking.cancel.clone();
    tokio::spawn(async move {
        let asked = async {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            asking.ask(attempt).await
        };
        // Whoever cancels does not want to know; a provider that does not heed it is dropped.
        if let Some(input) = cancel.run_until_cancelled(asked).await {
            // The run may have ended meanwhile.
            let _ = me.cast(RunMsg::Report(input, None));
        }
    });
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
    async fn ask(self, attempt: u32) -> Input {
        let turn = self.turn;
        let since = Instant::now();
        // A provider that panics is a fault of the provider: the run goes on with a retry.
        let limit = self.services.settings.turn;
        let answer = std::panic::AssertUnwindSafe(self.answer()).catch_unwind();
        let answer = match tokio::time::timeout(limit, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                Err(error(FaultClass::Transient, "the model provider failed in a way that it should not"))
            }
            Err(_) => {
                Err(error(FaultClass::Timeout, &format!("no whole answer within {} s", limit.as_secs())))
            }
        };
        let duration = since.elapsed();
        let outcome = answer.as_ref().err().map_or("ok", |error| error.class.as_str());
        metrics::counter!(metric::MODEL_REQUESTS, "class" => outcome).increment(1);
        metrics::histogram!(metric::MODEL_REQUEST_SECONDS).record(duration.as_secs_f64());
        match answer {
            Ok(answer) => {
                let proposal = answer.judged(&self, duration);
                Input::Replied { turn, attempt, proposal: Box::new(proposal) }
            }
            Err(ModelError { class, message, retry_after }) => {
                Input::ModelFailed { turn, attempt, class, error: message, retry_after, jitter: jitter() }
            }
        }
    }

    async fn answer(&self) -> Result<Answer, ModelError> {
        if let Err(fault) = message::validate(&self.request.messages) {
            return Err(error(FaultClass::Invalid, &format!("the conversation is not valid: {fault}")));
        }
        let stall = self.services.settings.stall;
        let mut deltas = self.model.provider.stream(self.request.clone(), self.cancel.clone());
        let mut answer = Answer::default();
        loop {
            let delta = tokio::time::timeout(stall, deltas.next()).await.map_err(|_| {
                error(FaultClass::Stall, &format!("the model said nothing for {} s", stall.as_secs()))
            })?;
            match delta {
                Some(Ok(delta)) => {
                    self.show(&delta);
                    if let Some(stop) = answer.take(delta) {
                        answer.stop = Some(stop);
                        return Ok(answer);
                    }
                }
                Some(Err(error)) => return Err(error),
                None => return Err(error(FaultClass::Transient, "the answer broke off")),
            }
        }
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
    usage: Option<Usage>,
    stop: Option<Stop>,
}

impl Answer {
    fn take(&mut self, delta: Delta) -> Option<Stop> {
        match delta {
            Delta::Text(more) if self.text.is_empty() => self.text = more,
            Delta::Text(more) => self.text.push_str(&more),
            Delta::Reasoning(more) => self.reasoning.push_str(&more),
            Delta::Progress => {}
            Delta::Call(call) => self.calls.push(call),
            Delta::Usage(usage) => self.usage = Some(usage),
            Delta::Stop(stop) => return Some(stop),
        }
        None
    }

    fn judged(self, asking: &Asking, duration: Duration) -> Proposal {
        let judge = judge::Judge {
            services: &asking.services,
            workspace: &asking.workspace,
            offered: &asking.offered,
        };
        Proposal {
            text: self.text.into(),
            reasoning: (!self.reasoning.is_empty()).then(|| self.reasoning.into()),
            calls: self.calls.into_iter().map(|call| judge.judge(call)).collect(),
            stop: self.stop.unwrap_or(Stop::Error),
            usage: self.usage,
            duration,
        }
    }
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
