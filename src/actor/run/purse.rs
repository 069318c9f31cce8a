//! What one request may come to: made to fit its run's own limits, reserved in every budget above, and settled once it is
//! over, however it ends.
//!
//! Asks of models that cost nothing, or nobody knows what, reserve nothing and tell nobody.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{Offer, RunActor, RunMsg, RunState};
use crate::{
    actor::{
        Services,
        supervisor::{Reserve, RootMsg},
    },
    domain::{
        budget::{Answer, Ask, MIN_TOKENS, Reservation, input_tokens},
        outcome::Limit,
        run::{Input, Run},
        task::TaskSpec,
        usage::{Limits, NanoUsd, Usage},
    },
    model::Model,
    store::{StoreError, Ticket},
};

/// Tokens that an answer may have where nobody says so; of a model that thinks, and of one that is to think hard, that
/// with its thoughts. Servers count what an answer may have as if it had it, and so do budgets.
const MAX_TOKENS: u32 = 8_192;
const MAX_TOKENS_WITH_THOUGHTS: u32 = 16_384;
const MAX_TOKENS_THINKING_HARD: u32 = 32_768;

/// A model whose answers may be longer than this is one that thinks.
const LONGEST_WITHOUT_THOUGHTS: u32 = 32_768;

/// Names reservations of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What is known of a request before it is sent.
pub(super) struct Purse {
    root: ActorRef<RootMsg>,
    run: ActorRef<RunMsg>,
    services: Arc<Services>,
    spec: Arc<TaskSpec>,
    window: Option<u64>,
    used: Usage,
    pub(super) ask: Ask,
    /// The run has used nothing up yet.
    opens: bool,
}

/// Why a request is not sent.
pub(super) enum Denied {
    /// It would pass this limit.
    Limit(Limit),
    /// What the run belongs to has no money left to begin it with.
    NotBegun,
}

impl Purse {
    pub(super) fn of(
        actor: &RunActor,
        me: &ActorRef<RunMsg>,
        state: &RunState,
        spec: &Arc<TaskSpec>,
    ) -> Self {
        let run = &state.run;
        Self {
            root: actor.supervisor.clone(),
            run: me.clone(),
            services: actor.services.clone(),
            window: state.model.context_tokens,
            spec: spec.clone(),
            used: run.usage(),
            ask: ask(run, spec, &state.model, &state.tools),
            opens: run.turn() == 1 && run.usage() == Usage::default(),
        }
    }

    /// What the request can come to at most, if it counts whatever becomes of it: it costs something, or its tokens are
    /// limited.
    pub(super) fn counted(&self) -> Option<Usage> {
        let costs = self.ask.price.is_some_and(|price| !price.is_free());
        (costs || self.spec.script.is_none() && counts_tokens(&self.spec)).then(|| self.ask.most())
    }

    /// Whether what is sent is within the model's window by itself.
    pub(super) fn fits(&self) -> bool {
        self.window.is_some_and(|window| self.ask.input <= window)
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

    /// Has the log say that the request goes out, if it counts; returns once that is on disk. From there on it comes to
    /// what was reserved, unless it is known better.
    pub(super) async fn depart(&self, held: &mut Held, turn: u32, attempt: u32) {
        let Some(usage) = self.counted() else { return };
        let (go, gone) = oneshot::channel();
        let _ = self.run.cast(RunMsg::Departs { turn, attempt, usage, go });
        if let Ok(ticket) = gone.await {
            held.settles_at = None;
            match self.services.store.durable(ticket).await {
                Ok(()) => return,
                Err(error) => drop(self.run.cast(RunMsg::StoreFailed(error))),
            }
        }
        // Whoever does not let it go out ends this task.
        std::future::pending().await
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
    /// Puts on record that the open request goes out, and lets it: whoever goes on from the log counts it.
    pub(super) fn departs(
        &self,
        state: &mut RunState,
        (turn, attempt): (u32, u32),
        usage: Usage,
        go: oneshot::Sender<Ticket>,
    ) -> Result<(), StoreError> {
        let sent = Input::RequestSent { turn, attempt, usage };
        // One that nobody waits for any more is on its way to its end.
        let Ok(facts) = state.run.decide(sent, self.services.clock.now()) else { return Ok(()) };
        let ticket = self.append(state, &facts)?;
        facts.iter().for_each(|fact| state.run.evolve(fact));
        // It may have been called off.
        let _ = go.send(ticket);
        Ok(())
    }
}

fn counts_tokens(spec: &TaskSpec) -> bool {
    let Limits { max_input_tokens, max_output_tokens, max_total_tokens, .. } = spec.limits;
    max_input_tokens.or(max_output_tokens).or(max_total_tokens).is_some()
}

fn ask(run: &Run, spec: &TaskSpec, model: &Model, tools: &Offer) -> Ask {
    let beside = || {
        let system = spec.system.as_ref().map_or(0, |text| text.len());
        let facts: usize = spec.facts.iter().map(|(name, fact)| name.len() + fact.len() + 8).sum();
        let form = spec.response_format.as_ref().and_then(|format| serde_json::to_string(format).ok());
        let form = form.map_or(0, |text| text.len());
        system + facts + form + tools.bytes()
    };
    let costs = model.price.is_some_and(|price| !price.is_free());
    // Where nobody asks for it, it is not reckoned.
    let is_reckoned = counts_tokens(spec) || costs || model.context_tokens.is_some();
    let input = if is_reckoned { input_tokens(run.history(), &model.wire_name, beside) } else { 0 };
    Ask { input, max_tokens: answer_tokens(spec, model, input, run.answer_at_most()), price: model.price }
}

/// Tokens that an answer may have to so many that are sent.
fn answer_tokens(spec: &TaskSpec, model: &Model, input: u64, at_most: Option<u32>) -> u32 {
    let most = model.max_output_tokens.unwrap_or(u32::MAX);
    let by_itself = || {
        let usual = match spec.params.reasoning_effort.as_deref() {
            Some("high" | "xhigh" | "max") => MAX_TOKENS_THINKING_HARD,
            Some(_) => MAX_TOKENS_WITH_THOUGHTS,
            None if most > LONGEST_WITHOUT_THOUGHTS && most < u32::MAX => MAX_TOKENS_WITH_THOUGHTS,
            None => MAX_TOKENS,
        };
        let wish = model.answer_tokens.unwrap_or(usual);
        let Some(window) = model.context_tokens else { return wish };
        let room = window.saturating_sub(input).max(MIN_TOKENS.into()).min(window / 2);
        wish.min(u32::try_from(room).unwrap_or(u32::MAX))
    };
    spec.params.max_tokens.unwrap_or_else(by_itself).min(most).min(at_most.unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::scripted::Scripted;

    #[test]
    fn an_answer_has_the_usual_room_unless_task_model_or_window_say_otherwise() {
        let model = |most, own, window| Model {
            max_output_tokens: most,
            answer_tokens: own,
            context_tokens: window,
            ..Model::new("m", Arc::new(Scripted::default()))
        };
        let spec = |max_tokens, effort: Option<&str>| {
            let params = serde_json::json!({"max_tokens": max_tokens, "reasoning_effort": effort});
            let spec = serde_json::json!({"task": "x", "attempt": 1, "model": "m", "workspace": "/w", "params": params});
            serde_json::from_value::<TaskSpec>(spec).expect("a task")
        };
        let plain = spec(None, None);
        let table = [
            (&plain, model(None, None, None), 0, None, 8_192),
            (&plain, model(Some(4_096), None, Some(100_000)), 1_000, None, 4_096),
            (&plain, model(Some(128_000), None, Some(400_000)), 1_000, None, 16_384),
            (&spec(None, Some("low")), model(Some(32_000), None, None), 0, None, 16_384),
            (&spec(None, Some("high")), model(Some(32_000), None, None), 0, None, 32_000),
            (&plain, model(Some(50_000), Some(50_000), Some(400_000)), 0, None, 50_000),
            (&plain, model(Some(50_000), Some(50_000), Some(400_000)), 390_000, None, 10_000),
            (&plain, model(None, None, Some(8_192)), 7_900, None, 1_024),
            (&plain, model(None, None, Some(8_192)), 100, None, 4_096),
            (&plain, model(None, None, Some(1_000)), 100, None, 500),
            (&spec(Some(60_000), None), model(Some(64_000), None, Some(200_000)), 199_000, None, 60_000),
            (&spec(Some(90_000), None), model(Some(64_000), None, None), 0, None, 64_000),
            (&spec(Some(60_000), None), model(None, None, None), 0, Some(2_048), 2_048),
        ];
        for (row, (spec, model, input, at_most, expected)) in table.iter().enumerate() {
            assert_eq!(answer_tokens(spec, model, *input, *at_most), *expected, "row {row}");
        }
    }
}
