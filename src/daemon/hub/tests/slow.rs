//! A reader that does not read costs nobody anything.

use super::{
    queue::{BYTES, EVENTS, Found, Queue},
    *,
};
use crate::daemon::hub::frame::Frame;
use crate::domain::event::Envelope;

#[tokio::test]
async fn a_stalled_reader_is_cut_off_with_a_gap_and_resumes_with_nothing_lost_or_repeated() {
    let world = world().await;
    let run = run_id(1);
    world.append(run, 0, &[submitted(None)]);
    let mut stalled = world.reader_of(run, 0, Deltas::Without).await;
    let mut other = world.reader_of_all(0, Filter::default()).await;
    assert_eq!((stalled.ids(1).await, other.ids(1).await), (vec![1], vec![1]));
    // It waits for the second event before it is there, so it has caught up.
    let (ids, ()) = tokio::join!(stalled.ids(1), async { world.append(run, 1, &[turn(1)]) });
    assert_eq!((ids, other.ids(1).await), (vec![2], vec![2]));
    // The writer is done and the other reader has everything while the stalled one has not read a word.
    let more = EVENTS as u64 * 2;
    for place in 2..2 + more {
        world.append(run, place, &[turn(1)]);
        assert!(other.next().await.is_some());
    }
    world.append(run, 2 + more, &[run_end()]);
    let gap = stalled.next().await.unwrap();
    assert_eq!((gap.id, &*gap.event), (None, "gap"));
    assert_eq!((&gap.data["code"], &gap.data["after"]), (&"slow_reader".into(), &2.into()));
    assert_eq!(stalled.next().await, None);
    let mut resumed = world.reader_of(run, 2, Deltas::Without).await;
    let ids: Vec<_> = resumed.rest().await.into_iter().map(|sent| sent.id.unwrap()).collect();
    assert_eq!(ids, (3..=3 + more).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reader_that_stalls_while_it_catches_up_goes_on_catching_up() {
    let world = world().await;
    let run = run_id(1);
    world.append(run, 0, &[submitted(None), turn(1), turn(1)]);
    let mut reader = world.reader_of(run, 0, Deltas::Without).await;
    // The first page reaches the head: from here on a queue fills.
    assert_eq!(reader.ids(3).await, [1, 2, 3]);
    let more = EVENTS as u64 * 2;
    world.append(run, 3, &vec![turn(1); EVENTS * 2]);
    timeout(DEADLINE, async {
        while world.hub.board().get(run).is_none_or(|glance| glance.seq.get() < 3 + more) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(reader.ids(EVENTS * 2).await, (4..4 + more).collect::<Vec<_>>());
    world.append(run, 3 + more, &[run_end()]);
    assert_eq!(reader.ids(1).await, [4 + more]);
    assert_eq!(reader.next().await, None);
}

#[tokio::test]
async fn a_reader_counts_as_a_follower_once_it_has_caught_up_and_as_one() {
    let world = world().await;
    let (run, other) = (run_id(1), run_id(2));
    world.append(run, 0, &[submitted(None)]);
    let filter = Filter { runs: BTreeSet::from([run, other]), ..Filter::default() };
    let mut reader = world.reader_of_all(0, filter).await;
    // The page that it is handed reaches the head, so a queue fills already; it may yet read on from the log.
    assert_eq!(reader.ids(1).await, [1]);
    assert_eq!((world.hub.shared.registry.entered(), world.hub.followers()), (2, 0));
    let reading = tokio::spawn(async move { (reader.ids(1).await, reader) });
    until_followed_by(&world, 1).await;
    world.append(run, 1, &[turn(1)]);
    let (ids, reader) = reading.await.unwrap();
    assert_eq!((ids, world.hub.followers()), (vec![2], 1));
    drop(reader);
    assert_eq!(world.hub.followers(), 0);
}

async fn until_followed_by(world: &World, count: usize) {
    timeout(DEADLINE, async {
        while world.hub.followers() != count {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[test]
fn what_waits_is_bounded_in_number_and_in_bytes_and_gone_once_it_is_too_much() {
    let frame =
        |fact: Fact| Frame::of(&Envelope { v: 1, pos: Pos::new(1), run: run_id(1), seq: Seq::new(1), fact });
    let large =
        fact(1, "result", &format!(r#"{{"call":"a","ok":true,"output":"{}"}}"#, "x".repeat(2 * BYTES)));
    for fact in [turn(1), result(), large] {
        let (queue, frame) = (Queue::default(), frame(fact));
        let mut taken = 0;
        while queue.offer(&frame) {
            taken += 1;
            assert_eq!(queue.waiting(), (taken, taken * frame.text.len()));
        }
        assert_eq!(taken, EVENTS.min(BYTES / frame.text.len()).max(1));
        assert_eq!(queue.waiting(), (0, 0));
        assert!(matches!(queue.take(), Found::Overflowed));
        assert!(!queue.offer(&frame));
    }
}
