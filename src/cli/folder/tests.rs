//! What runs of a folder look like.

use std::sync::Arc;

use super::*;
use crate::{
    domain::{id::Seq, run::Input, time::Timestamp},
    store::memory::MemoryStore,
};

/// Runs 1 to `count`, each labelled by whether its number is odd.
async fn store(count: u128) -> MemoryStore {
    let store = MemoryStore::default();
    for number in 1..=count {
        let odd = number % 2 == 1;
        let spec = format!(
            r#"{{"task": "Do\nit", "attempt": 1, "model": "m", "workspace": "/w", "labels": {{"odd": "{odd}"}}}}"#
        );
        let run = RunId::new(uuid::Uuid::from_u128(number));
        let submit = Input::Submit(Arc::new(serde_json::from_str(&spec).expect("a spec")));
        let facts = Run::new(run).decide(submit, Timestamp::from_micros(1)).expect("a fact");
        let ticket = store.append(run, Seq::START, &facts).expect("taken");
        store.durable(ticket).await.expect("kept");
    }
    store
}

#[tokio::test]
async fn a_run_that_is_held_goes_on_at_no_start() {
    let store = store(1).await;
    let id = RunId::new(uuid::Uuid::from_u128(1));
    let (mut run, _) = read_run(&store, id).await.expect("readable");
    for is_held in [false, true] {
        let folder = Folder { store: &store, patches: PathBuf::new(), is_attended: false };
        let told = if is_held { HELD.to_owned() } else { format!("queued: {UNATTENDED}") };
        assert_eq!(folder.phase(&run), told);
        assert_eq!(folder.state(&run), if is_held { RunState::Paused } else { RunState::Queued });
        let facts = run.decide(Input::Pause, Timestamp::from_micros(2)).unwrap_or_default();
        facts.iter().for_each(|fact| run.evolve(fact));
    }
}

#[tokio::test]
async fn the_newest_are_listed_and_all_that_match_are_counted() {
    let store = store(5).await;
    let origin = OriginArgs { labels: vec![("odd".into(), "true".into())], ..OriginArgs::default() };
    let odd = FilterArgs { origin, ..FilterArgs::default() };
    let mut state = State::in_memory();
    state.store = Arc::new(store);
    let list = list(&state, &odd, Some(2)).await.expect("readable");
    let ids: Vec<_> = list.runs.iter().map(|run| run.id.chars().last()).collect();
    assert_eq!(ids, [Some('3'), Some('5')]);
    assert_eq!((list.counts.total, list.counts.open), (3, 3));
    let run = &list.runs[0];
    assert_eq!((run.phase.as_str(), run.state), ("queued: waits for a slot", RunState::Queued));
    assert_eq!(run.about, "Do it");
}
