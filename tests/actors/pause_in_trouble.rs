//! Runs that are held while their log fails: what it does not take has not happened, and no run and no slot gets lost.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use herder::{
    actor::supervisor::{AskError, Load},
    domain::{
        event::Fact,
        gate::{PauseMode, Scope},
        run::{Input, Refused},
    },
};
use serde_json::json;

use crate::{
    doubles::{Double, Gate, Trouble, TroubledStore},
    pause::{held, parked, script, until_held, until_live},
    stage::{Plan, says},
};

#[tokio::test(start_paused = true)]
async fn a_run_whose_log_does_not_take_that_it_is_parked_is_held_all_the_same() {
    for trouble in [Trouble::Refuses, Trouble::Loses, Trouble::Panics] {
        let (gate, once) = (Gate::closed(), AtomicBool::new(false));
        let store = TroubledStore::new(move |_, _, facts| {
            let parks = facts.iter().any(|fact| fact.event.kind() == "parked");
            (parks && !once.swap(true, Ordering::SeqCst)).then_some(trouble)
        });
        let plan = Plan { store: Arc::new(store), ..Plan::paused() };
        let stage = plan.tool(Double::gated("gate", &gate)).start().await;
        let submitted = parked(&stage, &gate).await;
        let kinds = stage.kinds(submitted.run).await;
        assert_eq!(kinds[kinds.len() - 2..], ["restart", "parked"], "{trouble:?}");
        stage.unpause(submitted.run).await.unwrap();
        assert_eq!(stage.outcome(submitted).await, "done");
    }
}

/// A store that does not take the first few facts of a kind.
fn takes_no(kind: &'static str, times: usize, trouble: Trouble) -> Arc<TroubledStore> {
    let failed = AtomicUsize::new(0);
    let is_it = move |fact: &Fact| fact.event.kind() == kind;
    Arc::new(TroubledStore::new(move |_, _, facts| {
        let fails = facts.iter().any(is_it) && failed.fetch_add(1, Ordering::SeqCst) < times;
        fails.then_some(trouble)
    }))
}

#[tokio::test(start_paused = true)]
async fn what_the_log_does_not_take_of_a_run_without_a_slot_has_not_happened_and_whoever_asked_is_told() {
    for trouble in [Trouble::Refuses, Trouble::Loses] {
        let gate = Gate::closed();
        let plan = Plan { store: takes_no("paused", 2, trouble), ..Plan::paused() };
        let plan = plan.tool(Double::gated("gate", &gate)).settings(|settings| settings.max_live_runs = 1);
        let stage = plan.start().await;
        let first = stage.run(&script());
        gate.until_inside(1).await;
        let queued = stage.run(&json!([says("done")]));
        for _ in 0..2 {
            assert!(matches!(stage.pause(queued.run).await, Err(AskError::Store(_))), "{trouble:?}");
            assert!(matches!(stage.unpause(queued.run).await, Err(AskError::Refused(Refused::NotPaused))));
        }
        assert_eq!(stage.supervisor.load().await.queued, 1);
        stage.pause(queued.run).await.unwrap();
        assert_eq!(held(&stage).await, 1);
        assert_eq!(stage.kinds(queued.run).await, ["submitted", "paused"]);
        stage.unpause(queued.run).await.unwrap();
        gate.open.add_permits(1);
        for submitted in [first, queued] {
            let run = submitted.run;
            assert_eq!(stage.outcome(submitted).await, "done");
            assert!(!stage.kinds(run).await.contains(&"restart"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_got_a_slot_before_it_was_known_that_the_log_does_not_say_so_is_held_again() {
    let store = takes_no("input_queued", 1, Trouble::Loses);
    let plan = Plan { store: store.clone(), ..Plan::paused() };
    let gate = Gate::closed();
    let stage = plan.tool(Double::gated("gate", &gate)).start().await;
    let submitted = parked(&stage, &gate).await;
    let run = submitted.run;
    store.disk.send_replace(false);
    let word = || herder::actor::run::say(herder::domain::event::InputKind::Steer, "on");
    let ask = |input| {
        let supervisor = stage.supervisor.clone();
        tokio::spawn(async move { supervisor.ask(run, input).await })
    };
    // The first is lost, and with it what builds on it.
    let asked = [ask(word()), ask(word()), ask(word()), ask(word()), ask(Input::Resume)];
    until_live(&stage, 1).await;
    store.disk.send_replace(true);
    for asked in asked {
        assert!(matches!(asked.await.unwrap(), Err(AskError::Store(_))));
    }
    until_held(&stage, 1).await;
    assert_eq!(stage.supervisor.load().await, Load { held: 1, ..Load::default() });
    stage.unpause(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_parked_run_whose_next_actor_dies_before_anything_is_of_record_gives_its_slot_back_to_a_gate() {
    for trouble in [Trouble::Refuses, Trouble::Loses, Trouble::Panics] {
        let gate = Gate::closed();
        let store = takes_no("unparked", 1, trouble);
        let plan = Plan { store: store.clone(), ..Plan::paused() };
        let stage = plan.tool(Double::gated("gate", &gate)).start().await;
        let submitted = parked(&stage, &gate).await;
        let before = store.appends(submitted.run);
        stage.unpause(submitted.run).await.unwrap();
        while store.appends(submitted.run) < before + 2 {
            tokio::task::yield_now().await;
        }
        stage.supervisor.hold(Scope::All, PauseMode::Hold).await;
        until_held(&stage, 1).await;
        assert_eq!(stage.supervisor.load().await, Load { held: 1, ..Load::default() }, "{trouble:?}");
        stage.supervisor.release(Scope::All).await;
        assert_eq!(stage.outcome(submitted).await, "done");
    }
}
