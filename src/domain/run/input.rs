//! What is asked of a run or reported to it, and why it may be turned away.

use std::{sync::Arc, time::Duration};

use crate::domain::{
    call::{Access, Arguments, EffectClass, Failure, ToolResult},
    event::{CommandGroup, FileChange, Grant, InputKind, ParkReason, Resolution, RestartCause},
    id::CallId,
    message::{Kept, RequestRecord},
    outcome::{Breakage, FaultClass, Limit, Outcome, Stop},
    policy::Verdict,
    task::TaskSpec,
    time::Timestamp,
    usage::{Limits, Usage},
};

/// Something asked of a run, or reported to it.
#[derive(Clone, Debug)]
pub enum Input {
    /// Take the task on.
    Submit(Arc<TaskSpec>),
    /// Begin: there is a slot.
    Start {
        /// The model asked, as `provider:model`.
        model: Arc<str>,
        /// Tools the model is offered.
        tools: Vec<Arc<str>>,
    },
    /// The model answered.
    Replied {
        /// The turn that asked.
        turn: u32,
        /// The request of the turn.
        attempt: u32,
        /// What it said.
        proposal: Box<Proposal>,
    },
    /// A request gave no answer.
    ModelFailed {
        /// The turn that asked.
        turn: u32,
        /// The request of the turn.
        attempt: u32,
        /// What kind of failure it was.
        class: FaultClass,
        /// What was said about it.
        error: String,
        /// How long the server wants to be left alone.
        retry_after: Option<Duration>,
        /// What it may have used up all the same.
        usage: Option<Usage>,
        /// How long it waited for its place before it went out.
        waited: Duration,
        /// Bytes of the conversation that the model was shown, if anything was sent.
        shown: usize,
        /// Tokens that its answer might have had, if anything was sent.
        allowed: Option<u32>,
        /// Whether what it was shown is within the model's window by itself, by an upper estimate.
        fits: bool,
        /// What the run waits for without a slot, before the next request: then no try is used up.
        parks: Option<ParkReason>,
        /// The model that goes on when this one is given up.
        fallback: Option<Arc<str>>,
        /// A number in `0.0..1.0` that spreads retries.
        jitter: f64,
    },
    /// The turn's request is about to go out, and may use this up.
    RequestSent {
        /// The turn that asks.
        turn: u32,
        /// The request of the turn.
        attempt: u32,
        /// The most that can come of it.
        usage: Usage,
    },
    /// The turn's request would pass a limit.
    OutOfBudget {
        /// The turn that asks.
        turn: u32,
        /// The request of the turn.
        attempt: u32,
        /// Which limit.
        limit: Limit,
    },
    /// A call has its locks and its permit.
    Granted {
        /// The call.
        call: CallId,
        /// What it is about to change.
        change: Option<FileChange>,
    },
    /// A change in doubt turned out not to have been made: its call runs as it was judged.
    NotMade(CallId),
    /// A call runs these processes.
    Grouped(CommandGroup),
    /// A call would do something else than what a person approved of, or policy has.
    AskAgain {
        /// The call.
        call: CallId,
        /// What it touches now.
        access: Vec<Access>,
        /// The rule that wants a person to decide.
        rule: String,
        /// What it would do now.
        ask: Ask,
    },
    /// A person decides about a call.
    Resolve {
        /// The approval.
        approval: u32,
        /// What they say.
        answer: Answer,
        /// What they call it: said again by the same name, it is the same answer.
        command: Arc<str>,
        /// Who they are.
        by: Option<Arc<str>>,
    },
    /// See whether the time for some approval is up.
    Expire,
    /// A call ended.
    CallEnded(ToolResult),
    /// A person says something.
    Say {
        /// When it is to be taken up.
        when: InputKind,
        /// What is said.
        text: Arc<str>,
        /// For a steer: the turn that the person saw.
        expected_turn: Option<u32>,
        /// What whoever says it calls it: said again by the same name, it changes nothing.
        key: Option<Arc<str>>,
    },
    /// A person wants this call ended, and nothing else of the run.
    CancelCall(CallId),
    /// A person wants the run held before its next request.
    Pause,
    /// A person wants it to go on.
    Resume,
    /// It gives its slot up instead of sending its next request.
    Park(ParkReason),
    /// It has a slot again.
    Unpark,
    /// End, with this outcome, as soon as what runs has stopped.
    End(Outcome),
    /// herder is stopping; the run goes on at the next start.
    Interrupt,
    /// Go on from the log.
    Restart {
        /// Why.
        cause: RestartCause,
        /// What the dead actor said last.
        error: Option<String>,
    },
    /// A person changes its limits; what is absent stays.
    SetLimits(Limits),
    /// The run cannot be gone on with.
    GiveUp {
        /// Why.
        breakage: Breakage,
        /// In words.
        error: String,
    },
}

/// A whole answer of the model, its calls judged.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// What it said.
    pub text: Arc<str>,
    /// What it thought aloud.
    pub reasoning: Option<Arc<str>>,
    /// What its server wants back with it.
    pub kept: Option<Kept>,
    /// What it asks for.
    pub calls: Vec<ProposedCall>,
    /// What is wrong with its form, if it was to have one, has no calls, and is not of it.
    pub misfit: Option<Arc<str>>,
    /// Why it stopped talking.
    pub stop: Stop,
    /// What the request used up; absent if the provider did not say.
    pub usage: Option<Usage>,
    /// How long it took.
    pub duration: Duration,
    /// How long the request waited for its place before.
    pub waited: Duration,
    /// What was sent.
    pub request: Option<Arc<RequestRecord>>,
    /// The model that goes on if this is no answer.
    pub fallback: Option<Arc<str>>,
}

impl Proposal {
    /// An answer that says nothing and stopped for this reason.
    pub fn new(stop: Stop) -> Self {
        Self {
            text: "".into(),
            reasoning: None,
            kept: None,
            calls: Vec::new(),
            misfit: None,
            stop,
            usage: None,
            duration: Duration::ZERO,
            waited: Duration::ZERO,
            request: None,
            fallback: None,
        }
    }
}

/// A call that the model asks for, judged.
#[derive(Clone, Debug)]
pub struct ProposedCall {
    /// The provider's id, if it gave one.
    pub id: Option<Arc<str>>,
    /// The tool's name.
    pub name: Arc<str>,
    /// What to do it with.
    pub arguments: Arguments,
    /// Whether it may run.
    pub judgement: Judgement,
}

/// Whether a call may run.
#[derive(Clone, Debug)]
pub enum Judgement {
    /// Policy has spoken.
    Judged {
        /// What it said.
        verdict: Verdict,
        /// By which rule.
        rule: String,
        /// What the call does to the world at most.
        effect: EffectClass,
        /// What it touches.
        access: Vec<Access>,
        /// What a person is asked, if one is to decide and somebody is there to be asked.
        ask: Option<Ask>,
    },
    /// It is no call that could be judged.
    Refused {
        /// What is wrong with it.
        failure: Failure,
        /// In words for the model.
        why: String,
    },
}

/// What a person is asked about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// For a change of one file: the content that it starts from and the one that it leads to.
    pub change: Option<FileChange>,
    /// What they are shown.
    pub preview: Option<Arc<str>>,
    /// When nobody needs to answer any more.
    pub expires_at: Option<Timestamp>,
}

/// What a person says of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may run, and further ones like these.
    Approve(Option<Grant>),
    /// It may not, for this reason.
    Reject(Option<Arc<str>>),
}

/// Why an input was turned away. The run is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The run has already ended.
    #[error("the run has already ended")]
    Ended,
    /// The run is about to end.
    #[error("the run is being cancelled")]
    Ending,
    /// A report on a request that nobody waits for any more.
    #[error("no such request is open")]
    StaleRequest,
    /// A report on a call that is not open, or not that far.
    #[error("no such call is open")]
    UnknownCall,
    /// The call has started: whoever runs it has to stop it.
    #[error("the call has started")]
    CallStarted,
    /// It is paused already, so nothing changed; or it cannot go on since it is paused.
    #[error("the run is paused")]
    Paused,
    /// It is not paused, so nothing changed.
    #[error("the run is not paused")]
    NotPaused,
    /// It was so already.
    #[error("nothing changes by that")]
    Unchanged,
    /// Not expected where the run stands.
    #[error("not expected now")]
    OutOfTurn,
    /// No approval of that number was ever asked for.
    #[error("there is no such approval")]
    NoApproval,
    /// The approval was resolved, in another way or by another command.
    #[error("the approval is {} already", .0.as_str())]
    Resolved(Resolution),
    /// A steer for another turn.
    #[error("the run is at turn {actual} now")]
    OtherTurn {
        /// The turn that it is at.
        actual: u32,
    },
    /// An input without text.
    #[error("the text is empty")]
    Empty,
}
