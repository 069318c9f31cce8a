//! When a stream ends, and what it says when nothing happens.

use super::*;

#[tokio::test]
async fn a_stream_ends_with_its_run_and_at_once_for_whoever_has_the_end() {
    let world = world().await;
    let run = run_id(1);
    world.append(run, 0, &[submitted(None), turn(1)]);
    let mut follower = world.reader_of(run, 0, Deltas::Without).await;
    assert_eq!(follower.ids(2).await, [1, 2]);
    world.append(run, 2, &[run_end()]);
    let rest = follower.rest().await;
    assert_eq!(rest.iter().map(|sent| (sent.id, &*sent.event)).collect::<Vec<_>>(), [(Some(3), "run_end")]);
    assert_eq!(world.reader_of(run, 2, Deltas::Without).await.rest().await, rest);
    assert_eq!(world.reader_of(run, 3, Deltas::Without).await.rest().await, []);
}

#[tokio::test]
async fn a_cursor_beyond_the_head_waits_for_what_comes_after_it() {
    let world = world().await;
    let run = run_id(1);
    let mut early = world.reader_of(run, 2, Deltas::Without).await;
    world.append(run, 0, &[submitted(None), turn(1), turn(1), run_end()]);
    assert_eq!(early.ids(2).await, [3, 4]);
    assert_eq!(early.next().await, None);
}

#[tokio::test]
async fn closing_the_server_or_the_log_ends_every_stream_and_says_so() {
    for closes_log in [false, true] {
        let world = world().await;
        world.append(run_id(1), 0, &[submitted(None)]);
        let mut of_run = world.reader_of(run_id(1), 0, Deltas::Without).await;
        let mut of_all = world.reader_of_all(0, Filter::default()).await;
        assert_eq!((of_run.ids(1).await, of_all.ids(1).await), (vec![1], vec![1]));
        let close = async {
            // Both wait by now.
            tokio::task::yield_now().await;
            if closes_log { world.store.close() } else { world.closing.cancel() }
        };
        let (of_run, of_all, ()) = tokio::join!(of_run.rest(), of_all.rest(), close);
        for rest in [of_run, of_all] {
            assert_eq!(rest.len(), 1);
            assert_eq!((rest[0].id, &*rest[0].event), (None, "end"));
            assert_eq!(rest[0].data["code"], "closing");
        }
        let late = world.hub.all(Pos::START, Filter::default(), Deltas::Without);
        assert_eq!(Reader::new(late).rest().await.pop().unwrap().event, "end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_gives_a_sign_of_life_each_fifteen_seconds() {
    let world = world().await;
    world.append(run_id(1), 0, &[submitted(None)]);
    let mut reader = world.reader_of(run_id(1), 1, Deltas::Without).await;
    for _ in 0..3 {
        let before = tokio::time::Instant::now();
        assert_eq!(reader.next().await.unwrap().event, ": ping");
        assert_eq!(before.elapsed().as_secs(), 15);
    }
    world.append(run_id(1), 1, &[turn(1)]);
    assert_eq!(reader.ids(1).await, [2]);
}
