//! One call, from the grant of its locks to their release.
//!
//! The locks are this task's: they are given back when it ends, however it ends. The order within is fixed: the log
//! says that the call is about to take effect, then it takes effect, then the log has the result, then the locks go; and
//! not before threads have ended that go on after their call was given up.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::BoxFuture};
use ractor::ActorRef;
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    doubt,
    message::{ExecutorMsg, Job},
};
use crate::{
    actor::{Services, run::RunMsg},
    crash::{self, Point},
    domain::{
        call::{Access, EffectClass, Failure, Timing, ToolResult},
        event::{CommandGroup, FileChange},
        policy::Verdict,
        run::Input,
        schedule::Ticket,
        time::Timestamp,
    },
    telemetry::metric,
    tool::{CallContext, Output, PANICKED, ProcessesPort, Started},
};

/// How often a call is queued again because what it touches had moved.
const MOVES: u8 = 3;

/// How much longer than a run a call is given that heeds neither its time-out nor its cancellation, before its work is
/// dropped: the supervisor, who gives the run up as stuck, comes first.
const LEEWAY: Duration = Duration::from_secs(5);

/// Gives the locks back, whatever happens to the task.
struct Locks {
    executor: ActorRef<ExecutorMsg>,
    ticket: Option<Ticket>,
}

impl Locks {
    /// The locks go back as part of another message.
    const fn hand_over(&mut self) -> Option<Ticket> {
        self.ticket.take()
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // Fails only if the executor is gone, and its queue with it.
            let _ = self.executor.cast(ExecutorMsg::Finished(ticket));
        }
    }
}

/// Runs one call inside its locks.
pub(super) async fn run(
    services: Arc<Services>,
    executor: ActorRef<ExecutorMsg>,
    ticket: Ticket,
    job: Job,
    executor_gone: CancellationToken,
) {
    let mut locks = Locks { executor, ticket: Some(ticket) };
    let held = Held::begin(&services, &job);
    let cancel = job.cancel.clone();
    let blocking = TaskTracker::new();
    let call = AssertUnwindSafe(call(&services, &job, cancel.clone(), &blocking)).catch_unwind();
    let reached = until_executor_gone(call, &executor_gone, &cancel).await;
    match reached.unwrap_or_else(|_| Reached::End(Output::failed(Failure::Failed, PANICKED))) {
        Reached::End(output) => {
            let result = held.result(&job, output);
            let (taken, stored) = oneshot::channel();
            if job.report_to.cast(RunMsg::Report(Input::CallEnded(result), Some(taken))).is_ok() {
                // Either answer will do: handed to the store, or nobody there to do it.
                let _ = stored.await;
            }
            // A thread of dropped work may change something yet.
            if job.decision.effect != EffectClass::Read {
                blocking.close();
                blocking.wait().await;
            }
        }
        Reached::Moved(access) => {
            if let Some(ticket) = locks.hand_over() {
                let moves = job.moves + 1;
                let job = Box::new(Job { access: access.into(), moves, ..job });
                let _ = locks.executor.cast(ExecutorMsg::Moved(ticket, job));
            }
        }
        Reached::Ask(ask) => {
            // The run may have ended meanwhile; then nobody needs to decide.
            let _ = job.report_to.cast(RunMsg::Report(ask, None));
        }
        Reached::Nothing => {}
    }
}

/// An executor that dies cancels its calls; they still end in their own time, and their locks with them.
async fn until_executor_gone<T>(
    work: impl Future<Output = T>,
    executor_gone: &CancellationToken,
    cancel: &CancellationToken,
) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        reached = &mut work => reached,
        () = executor_gone.cancelled() => {
            cancel.cancel();
            work.await
        }
    }
}

/// How far a call came.
enum Reached {
    End(Output),
    Moved(Vec<Access>),
    /// A person is to decide, about something else than before; nothing was done.
    Ask(Input),
    /// The run is gone or no longer wants the call; nothing was done.
    Nothing,
}

async fn call(services: &Services, job: &Job, cancel: CancellationToken, blocking: &TaskTracker) -> Reached {
    let limit = services.settings.tool;
    let begun = tokio::time::timeout(limit, begin(services, job, cancel.clone(), blocking.clone()));
    // Up to here nothing was changed, so there is nothing to wait for.
    let (change, work) = match cancel.run_until_cancelled(begun).await {
        Some(_) if cancel.is_cancelled() => return Reached::Nothing,
        None => return Reached::Nothing,
        Some(Err(_)) => {
            cancel.cancel();
            return Reached::End(Output::failed(Failure::TimedOut, "the tool did not begin in time"));
        }
        Some(Ok(Err(reached))) => return reached,
        Some(Ok(Ok(ready))) => ready,
    };
    if !granted(services, job, change).await {
        return Reached::Nothing;
    }
    crash::point(Point::BeforeCall);
    let output = within(services, &cancel, work).await;
    crash::point(Point::AfterCall);
    Reached::End(output)
}

type Work = BoxFuture<'static, Output>;

/// Gets the call ready; an error is how it ended before it took effect.
async fn begin(
    services: &Services,
    job: &Job,
    cancel: CancellationToken,
    blocking: TaskTracker,
) -> Result<(Option<FileChange>, Work), Reached> {
    if let Some(change) = &job.doubt
        && let Some(output) = doubt::settle(&job.workspace, change).await
    {
        return Err(Reached::End(output));
    }
    let Ok(arguments) = serde_json::from_str(job.call.arguments.as_str()) else {
        let why = "the arguments are not a JSON object";
        return Err(Reached::End(Output::failed(Failure::InvalidArguments, why)));
    };
    let context = CallContext {
        run: job.run,
        task_id: job.task_id.clone(),
        call: job.call.id.clone(),
        workspace: job.workspace.clone(),
        access: job.access.clone(),
        cancel,
        timeout: services.settings.tool,
        blocking,
        processes: processes(job),
    };
    match job.tool.clone().start(context, arguments).await {
        Started::Ready { change, work } => match &job.approved {
            Some(approved) if approved.change != change => {
                Err(ask_again(services, job, job.access.to_vec(), approved.rule.clone()).await)
            }
            Some(_) | None => Ok((change, work)),
        },
        Started::Ended(output) => Err(Reached::End(output)),
        Started::Moved(access) if job.moves < MOVES => Err(moved(services, job, access).await),
        Started::Moved(_) => {
            let why = "what the path names keeps changing; nothing was done";
            Err(Reached::End(Output::failed(Failure::Failed, why)))
        }
    }
}

/// Has the log name the call's processes. Nobody waits until that is on disk: should herder die before, their guard, at the
/// other end of its socket, ends them by itself.
fn processes(job: &Job) -> ProcessesPort {
    let (report_to, call) = (job.report_to.clone(), job.call.id.clone());
    ProcessesPort::new(move |leader| {
        let (pid, started, boot) = (leader.pid, leader.start_time, leader.boot_id.as_str().into());
        let group = CommandGroup { call: call.clone(), pid, started, boot };
        // The run may be gone; then the call is about to end.
        let _ = report_to.cast(RunMsg::Report(Input::Grouped(group), None));
    })
}

/// What the call names is something else now, on which policy has not spoken yet.
async fn moved(services: &Services, job: &Job, access: Vec<Access>) -> Reached {
    // They were read when the call began.
    let arguments = serde_json::from_str(job.call.arguments.as_str()).unwrap_or_default();
    let (verdict, rule) = services.judge(&*job.tool, &job.workspace, &access, &arguments);
    if verdict == Verdict::Ask && services.settings.approvals.is_some() {
        return ask_again(services, job, access, rule).await;
    }
    match verdict.denial(&rule) {
        None => Reached::Moved(access),
        Some(why) => Reached::End(Output::failed(Failure::Denied, why)),
    }
}

/// What the call would do is not, or no longer, what a person has approved of.
async fn ask_again(services: &Services, job: &Job, access: Vec<Access>, rule: String) -> Reached {
    let approvals = services.settings.approvals.unwrap_or_default();
    match services.preview(job.tool.clone(), &job.workspace, &job.call.arguments, approvals).await {
        Ok(ask) => Reached::Ask(Input::AskAgain { call: job.call.id.clone(), access, rule, ask }),
        Err(why) => Reached::End(Output::failed(Failure::Failed, why)),
    }
}

/// Has the log say that the call is about to take effect. A read need not wait until that is on disk.
async fn granted(services: &Services, job: &Job, change: Option<FileChange>) -> bool {
    let (go, gone_ahead) = oneshot::channel();
    let message = RunMsg::Granted { call: job.call.id.clone(), change, go };
    if job.report_to.cast(message).is_err() {
        return false;
    }
    let Ok(ticket) = gone_ahead.await else { return false };
    match job.decision.effect {
        EffectClass::Read => true,
        EffectClass::Write | EffectClass::Outside => match services.store.durable(ticket).await {
            Ok(()) => true,
            Err(error) => {
                // The run goes on from what the log has.
                let _ = job.report_to.cast(RunMsg::StoreFailed(error));
                false
            }
        },
    }
}

/// Awaits the work, which ends by itself on time-out and cancellation; what does not is dropped.
async fn within(services: &Services, cancel: &CancellationToken, mut work: Work) -> Output {
    let limit = services.settings.tool;
    let patience = async {
        tokio::select! {
            () = tokio::time::sleep(limit) => Failure::TimedOut,
            () = cancel.cancelled() => Failure::Cancelled,
        }
    };
    let failure = tokio::select! {
        biased;
        output = &mut work => return output,
        failure = patience => failure,
    };
    cancel.cancel();
    match tokio::time::timeout(services.settings.stuck + LEEWAY, work).await {
        Ok(output) if failure == Failure::TimedOut && output.failure == Some(Failure::Cancelled) => {
            Output::failed(Failure::TimedOut, output.text)
        }
        Ok(output) => output,
        Err(_) => Output::failed(failure, "the tool did not end when it was told to and was dropped"),
    }
}

/// When the locks were held.
struct Held {
    granted_at: Timestamp,
    since: Instant,
    waited: Duration,
}

impl Held {
    fn begin(services: &Services, job: &Job) -> Self {
        let granted_at = services.clock.now();
        let waited = granted_at.since(job.queued_at);
        metrics::histogram!(metric::LOCK_WAIT_SECONDS, "effect" => job.decision.effect.as_str())
            .record(waited.as_secs_f64());
        Self { granted_at, since: Instant::now(), waited }
    }

    fn result(self, job: &Job, output: Output) -> ToolResult {
        let held = self.since.elapsed();
        let effect = job.decision.effect.as_str();
        metrics::histogram!(metric::LOCK_HOLD_SECONDS, "effect" => effect).record(held.as_secs_f64());
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let (waited_us, held_us) = (micros(self.waited), micros(held));
        let timing = Timing { waited_us, granted_at: self.granted_at, held_us };
        output.answer(job.call.id.clone(), Some(timing))
    }
}
