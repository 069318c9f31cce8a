//! One run: the shell round [`crate::domain::run`].
//!
//! A handler has the run decide, appends the facts, folds them in, starts what is newly owed and returns; it awaits
//! neither a model nor a tool nor the disk. Requests and calls go on in tasks that report back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Services, executor::ExecutorMsg, supervisor::RootMsg};
use crate::{
    domain::{
        event::{InputKind, RestartCause},
        id::RunId,
        run::{Input, Run},
    },
    model::{Model, governor::Pledge},
    store::StoreError,
    telemetry::span,
    tool::workspace::Workspace,
};

mod answer;
mod ask;
mod counting;
mod fallback;
mod form;
mod hold;
mod judge;
mod message;
mod place;
mod purse;
mod step;
mod stop;
mod timer;

pub use ask::jitter;
pub use fallback::{fallback_of, means};
pub use form::Form;
pub use judge::Offer;
pub use message::RunMsg;
use step::Progress;

/// A run at work.
pub struct RunActor {
    services: Arc<Services>,
    supervisor: ActorRef<RootMsg>,
    /// Whether the log was handed the run's end: tells a good exit from a death.
    ended: Arc<AtomicBool>,
    /// Ends this run's requests and calls.
    cancel: CancellationToken,
    /// Fires when this actor ends, however it ends.
    _cancel_on_end: DropGuard,
    span: tracing::Span,
}

/// What a run actor is started with.
pub struct RunArgs {
    /// The run as its log says.
    pub run: Run,
    /// Who answers.
    pub model: Arc<Model>,
    /// Where its tools work.
    pub workspace: Arc<Workspace>,
    /// What it is offered.
    pub tools: Offer,
    /// The form that its last answer must have.
    pub form: Option<Arc<Form>>,
    /// Who runs its calls.
    pub executor: ActorRef<ExecutorMsg>,
    /// Whether it is to send no further request.
    pub held: bool,
    /// Counts it as one that is about to ask, until it does.
    pub pledge: Option<Pledge>,
}

/// The run and what it has under way.
pub struct RunState {
    run: Run,
    model: Arc<Model>,
    workspace: Arc<Workspace>,
    tools: Offer,
    /// The form that its last answer must have.
    form: Option<Arc<Form>>,
    executor: ActorRef<ExecutorMsg>,
    /// It is to send no further request.
    held: bool,
    progress: Progress,
}

impl RunActor {
    /// A run that reports its end to `supervisor`.
    pub fn new(
        run: RunId,
        services: Arc<Services>,
        supervisor: ActorRef<RootMsg>,
        ended: Arc<AtomicBool>,
    ) -> Self {
        let cancel = CancellationToken::new();
        let span = span::run(run);
        Self { services, supervisor, ended, _cancel_on_end: cancel.clone().drop_guard(), cancel, span }
    }
}

impl Actor for RunActor {
    type Msg = RunMsg;
    type State = RunState;
    type Arguments = RunArgs;

    async fn pre_start(&self, _: ActorRef<RunMsg>, args: RunArgs) -> Result<RunState, ActorProcessingErr> {
        let RunArgs { run, model, workspace, tools, form, executor, held, pledge } = args;
        let progress = Progress::pledged(pledge);
        Ok(RunState { run, model, workspace, tools, form, executor, held, progress })
    }

    async fn handle(
        &self,
        me: ActorRef<RunMsg>,
        message: RunMsg,
        state: &mut RunState,
    ) -> Result<(), ActorProcessingErr> {
        if self.ended.load(Ordering::Relaxed) {
            self.too_late(&me, state, message);
            return Ok(());
        }
        Ok(self.span.in_scope(|| self.take(&me, state, message))?)
    }
}

impl RunActor {
    fn take(&self, me: &ActorRef<RunMsg>, state: &mut RunState, message: RunMsg) -> Result<(), StoreError> {
        match message {
            RunMsg::Begin(input) => self.report(me, state, input)?,
            RunMsg::Ask(Input::CancelCall(call), reply) => self.cancel_call(me, state, call, reply)?,
            RunMsg::Ask(input, reply) => self.ask(me, state, input, reply)?,
            RunMsg::Report(input, taken) => {
                self.report(me, state, input)?;
                // Whoever waits for this may be gone.
                taken.map(|taken| taken.send(()));
            }
            RunMsg::Asked(mut input, permit) => {
                self.offer_fallback(state, &mut input);
                state.progress.permit = permit;
                if let Input::Park(reason) = input {
                    self.park_as(me, state, reason)?;
                } else {
                    self.report(me, state, input)?;
                }
                // Whoever asks next has taken it; if nobody does, the place is free.
                state.progress.permit = None;
            }
            RunMsg::Departs { turn, attempt, usage, go } => {
                self.departs(state, (turn, attempt), usage, go)?
            }
            RunMsg::Granted { call, change, go } => self.granted(me, state, call, change, go)?,
            RunMsg::Executor(executor) => self.use_executor(me, state, executor),
            RunMsg::CheckTime => self.check_time(me, state)?,
            RunMsg::Drain => self.drain(me, state)?,
            RunMsg::Interrupt => self.interrupt(me, state)?,
            RunMsg::Hold => self.hold(me, state),
            RunMsg::GoOn => self.go_on(me, state),
            RunMsg::Park => self.park(me, state)?,
            RunMsg::HandOver => self.hand_over(state),
            RunMsg::Leave => me.stop(None),
            RunMsg::StoreFailed(error) => return Err(error),
        }
        Ok(())
    }
}

/// How a run goes on: from its log, and from its first turn if it never started. That a process was started again means
/// nothing to a run that only waited, or was parked.
pub fn beginning(
    run: &Run,
    model: &Model,
    tools: Vec<Arc<str>>,
    cause: RestartCause,
    error: Option<String>,
) -> impl Iterator<Item = Input> {
    let only_waited = run.started_at().is_none();
    let parked = run.parked().is_some();
    let goes_on = !(only_waited || parked) || cause == RestartCause::Actor;
    let restart = goes_on.then_some(Input::Restart { cause, error });
    let start = only_waited.then(|| Input::Start { model: model.name.clone(), tools });
    restart.into_iter().chain(parked.then_some(Input::Unpark)).chain(start)
}

/// Something that a person says to a run.
pub fn say(when: InputKind, text: impl Into<Arc<str>>) -> Input {
    Input::Say { when, text: text.into(), expected_turn: None, key: None }
}
