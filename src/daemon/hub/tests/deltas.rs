//! Text as it is spoken: as far as its reader keeps up, and never at the cost of an event.

use super::{queue::DELTA_BYTES, *};

fn say(world: &World, run: u64, text: &str) {
    let live = Live { run: run_id(run), turn: 1, what: LiveDelta::Text(text.into()) };
    // Nobody may listen.
    let _ = world.live.send(live);
}

#[tokio::test]
async fn spoken_text_comes_to_those_that_asked_and_follow_its_run() {
    let world = world().await;
    for run in [1, 2] {
        world.append(run_id(run), 0, &[submitted(None)]);
    }
    assert_eq!(world.live.receiver_count(), 0);
    let mut listens = world.reader_of(run_id(1), 0, Deltas::With).await;
    let mut does_not = world.reader_of(run_id(1), 0, Deltas::Without).await;
    assert_eq!((listens.ids(1).await, does_not.ids(1).await), (vec![1], vec![1]));
    assert_eq!(world.live.receiver_count(), 1);
    say(&world, 2, "another run's");
    say(&world, 1, "two\nlines");
    let sent = listens.next().await.unwrap();
    let data = serde_json::json!({ "run": run_id(1), "turn": 1, "text": "two\nlines" });
    assert_eq!(sent, Sent { id: None, event: "text".to_owned(), data });
    world.append(run_id(1), 1, &[turn(1)]);
    assert_eq!((listens.ids(1).await, does_not.ids(1).await), (vec![2], vec![2]));
    drop(listens);
    say(&world, 1, "to nobody");
    timeout(DEADLINE, async {
        while world.live.receiver_count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_listener_misses_text_but_no_event_and_costs_no_memory() {
    const DELTAS: u64 = 200_000;
    let world = world().await;
    let run = run_id(1);
    world.append(run, 0, &[submitted(None)]);
    let mut stalled = world.reader_of(run, 0, Deltas::With).await;
    assert_eq!(stalled.ids(1).await, [1]);
    // It waits for the second event before it is there, so it has caught up.
    let (ids, ()) = tokio::join!(stalled.ids(1), async { world.append(run, 1, &[turn(1)]) });
    assert_eq!(ids, [2]);
    // Words are handed on one by one: once another run's word has come, all that was said before it is through.
    let other = run_id(2);
    world.append(other, 0, &[submitted(None)]);
    let mut witness = world.reader_of(other, 0, Deltas::With).await;
    assert_eq!(witness.ids(1).await, [1]);
    let (ids, ()) = tokio::join!(witness.ids(1), async { world.append(other, 1, &[turn(1)]) });
    assert_eq!(ids, [2]);
    let text: Arc<str> = "x".repeat(1_000).into();
    let say = |run| {
        let live = Live { run, turn: 1, what: LiveDelta::Text(text.clone()) };
        assert!(world.live.send(live).is_ok());
    };
    for count in 1..=DELTAS {
        say(run);
        if count % 512 == 0 {
            tokio::task::yield_now().await;
        }
    }
    say(other);
    while witness.next().await.unwrap().event != "text" {}
    world.append(run, 2, &[turn(1), run_end()]);
    timeout(DEADLINE, async {
        while world.hub.board().get(run).is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    let (mut came, mut missed, mut ids) = (0, 0, Vec::new());
    for sent in stalled.rest().await {
        match &*sent.event {
            "text" => came += 1,
            "lagged" => missed += sent.data["missed"].as_u64().unwrap(),
            _ => ids.extend(sent.id),
        }
    }
    assert_eq!(ids, [3, 4]);
    assert!(came > 0 && came * 1_000 <= DELTA_BYTES, "{came} came");
    assert_eq!(missed + came as u64, DELTAS);
}
