//! What one request may come to: made to fit its run's own limits, reserved in every budget above, and settled once it is
//! over, however it ends.
//!
//! Asks of models that cost nothing, or nobody knows what, reserve nothing and tell nobody.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{Offer, RunActor, RunState};
use crate::{
    actor::supervisor::{Reserve, RootMsg},
    domain::{
        budget::{Answer, Ask, Reservation, input_tokens},
        call::ToolSpec,
        outcome::Limit,
        run::{Input, Phase, Run},
        task::TaskSpec,
        usage::{Limits, NanoUsd, Usage},
    },
    model::Model,
    store::StoreError,
};

/// Tokens that an answer may have where neither the task nor the model says so.
const MAX_TOKENS: u32 = 8_192;

/// Names reservations of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What is known of a request before it is sent.
pub(super) struct Purse {
    root: ActorRef<RootMsg>,
    spec: Arc<TaskSpec>,
    used: Usage,
    pub(super) ask: Ask,
    /// The run has used nothing up yet.
    opens: bool,
    out: Out,
}

/// What a request that is out may have used up at most, where that costs anything; empty until it is sent.
pub(super) type Out = Arc<OnceLock<Usage>>;

/// Why a request is not sent.
pub(super) enum Denied {
    /// It would pass this limit.
    Limit(Limit),
    /// What the run belongs to has no money left to begin it with.
    NotBegun,
}

impl Purse {
    pub(super) fn of(actor: &RunActor, state: &RunState, spec: &Arc<TaskSpec>) -> Self {
        let run = &state.run;
        Self {
            root: actor.supervisor.clone(),
            spec: spec.clone(),
            used: run.usage(),
            ask: ask(run, spec, &state.model, &state.tools),
            opens: run.turn() == 1 && run.usage() == Usage::default(),
            out: Out::default(),
        }
    }

    pub(super) fn out(&self) -> Out {
        self.out.clone()
    }

    /// What the request can come to at most.
    pub(super) fn most(&self) -> Usage {
        self.ask.most()
    }

    /// Whether it costs anything.
    pub(super) fn costs(&self) -> bool {
        self.ask.price.is_some_and(|price| !price.is_free())
    }

    /// Makes the request fit what is left of the run's limits.
    pub(super) fn fit(&mut self) -> Result<(), Denied> {
        let mut limits = self.spec.limits;
        if self.spec.script.is_some() {
            // What a script says that it used up has nothing to do with what it is sent.
            limits = Limits { max_cost_usd: limits.max_cost_usd, ..Limits::default() };
        }
        self.ask = self.ask.within(&limits, &self.used).map_err(Denied::Limit)?;
        Ok(())
    }

    /// Reserves what the request can cost; it may have to be lowered for that. Waits as long as others may yet make room.
    pub(super) async fn reserve(&mut self) -> Result<Held, Denied> {
        let Some(price) = self.ask.price.filter(|price| !price.is_free()) else {
            return Ok(Held { root: None, id: Reservation(0), settles_at: None });
        };
        let id = Reservation(NEXT.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        let cost = |output: u32| price.most(self.ask.input, output.into());
        let reserve = Reserve {
            id,
            spec: self.spec.clone(),
            amount: cost(self.ask.max_tokens),
            least: cost(self.ask.least_tokens()),
            opens: self.opens,
            reply,
        };
        let held = Held { root: Some(self.root.clone()), id, settles_at: Some(NanoUsd::default()) };
        let _ = self.root.cast(RootMsg::Reserve(Box::new(reserve)));
        match answer.await {
            Ok(Answer::Granted(amount)) => {
                self.ask = self.ask.granted(amount);
                Ok(held)
            }
            Ok(Answer::Refused(_)) if self.opens && self.spec.batch.is_some() => Err(Denied::NotBegun),
            Ok(Answer::Refused(_)) => Err(Denied::Limit(Limit::Cost)),
            // herder is going down, and this request with it.
            Err(_) => std::future::pending().await,
        }
    }

    /// The request is about to be sent: from here on it costs what was reserved, unless it is known better.
    pub(super) fn sent(&self, held: &mut Held) {
        held.settles_at = None;
        if self.costs() {
            // Each request has its own.
            let _ = self.out.set(self.most());
        }
    }
}

/// A reservation. It is settled when this is dropped.
pub(super) struct Held {
    root: Option<ActorRef<RootMsg>>,
    id: Reservation,
    /// What it has come to; absent: nobody knows, so the whole of it.
    settles_at: Option<NanoUsd>,
}

impl Held {
    /// Ends it at what the request has come to.
    pub(super) fn settle(mut self, cost: Option<NanoUsd>) {
        self.settles_at = cost;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(root) = &self.root {
            // The supervisor may have gone down already, and with it whoever counts.
            let _ = root.cast(RootMsg::Settle(self.id, self.settles_at));
        }
    }
}

impl RunActor {
    /// Puts on record what the open request may have used up, if it is out: nobody will hear its answer.
    pub(super) fn give_up_request(&self, state: &mut RunState) -> Result<(), StoreError> {
        match state.progress.out.take().and_then(|out| out.get().copied()) {
            Some(usage) => self.put(state, Input::RequestLost(usage)),
            None => Ok(()),
        }
    }

    /// Puts something on record that nothing follows from.
    pub(super) fn put(&self, state: &mut RunState, input: Input) -> Result<(), StoreError> {
        let Ok(facts) = state.run.decide(input, self.services.clock.now()) else { return Ok(()) };
        state.progress.last = Some(self.services.store.append(state.run.id(), state.run.seq(), &facts)?);
        facts.iter().for_each(|fact| state.run.evolve(fact));
        Ok(())
    }
}

fn ask(run: &Run, spec: &TaskSpec, model: &Model, tools: &Offer) -> Ask {
    let by_itself = || {
        let window =
            model.context_tokens.map_or(u32::MAX, |window| u32::try_from(window / 2).unwrap_or(u32::MAX));
        MAX_TOKENS.min(window)
    };
    let beside = || {
        let system = spec.system.as_ref().map_or(0, |text| text.len());
        let facts: usize = spec.facts.iter().map(|(name, fact)| name.len() + fact.len() + 8).sum();
        let tool =
            |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.schema.to_string().len() + 64;
        system + facts + tools.specs.iter().map(tool).sum::<usize>()
    };
    let Limits { max_input_tokens, max_output_tokens, max_total_tokens, .. } = spec.limits;
    let counts = max_input_tokens.or(max_output_tokens).or(max_total_tokens).is_some();
    let costs = model.price.is_some_and(|price| !price.is_free());
    Ask {
        // Where nobody asks for it, it is not reckoned.
        input: if counts || costs { input_tokens(run.history(), &model.wire_name, beside) } else { 0 },
        max_tokens: spec.params.max_tokens.or(model.max_output_tokens).unwrap_or_else(by_itself),
        price: model.price,
    }
}

/// What the open request of a run may have used up whose process or actor is gone, if it may have been sent and costs
/// anything.
pub fn lost(run: &Run, model: &Model, tools: &Offer) -> Option<Usage> {
    let price = model.price.filter(|price| !price.is_free());
    let is_out = run.may_be_heard() && matches!(run.phase(), Phase::Thinking { .. });
    let spec = run.spec().filter(|_| is_out && price.is_some())?;
    let ask = ask(run, spec, model, tools);
    // One that would have passed a limit was not sent.
    ask.within(&spec.limits, &run.usage()).ok().map(|ask| ask.most())
}
