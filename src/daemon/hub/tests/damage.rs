//! A log that cannot be read.

use super::*;
use crate::store::sqlite::{Options, SqliteStore};

#[tokio::test]
async fn a_damaged_log_ends_the_streams_that_would_need_it_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.db");
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    for run in [1, 2] {
        append(&store, run_id(run), 0, &[submitted(None), turn(1)]);
    }
    store.close();
    drop(store);
    let db = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(db.execute("UPDATE append SET body = x'5b5d' WHERE pos = 4", []).unwrap(), 1);
    drop(db);

    let store = Arc::new(SqliteStore::open(&path, Options::default()).unwrap());
    let live = broadcast::channel(1).0;
    let hub = Hub::start(store, live, &CancellationToken::new()).await.unwrap();
    assert!(hub.board().get(run_id(1)).is_some() && hub.board().get(run_id(2)).is_none());
    let streams = [
        hub.all(Pos::START, Filter::default(), Deltas::Without),
        hub.run(run_id(2), Seq::START, Deltas::Without),
    ];
    for stream in streams {
        let last = Reader::new(stream).rest().await.pop().unwrap();
        assert_eq!((last.id, &*last.event, &last.data["code"]), (None, "error", &"internal".into()));
    }
    let mut healthy = Reader::new(hub.run(run_id(1), Seq::START, Deltas::Without));
    healthy.greeting().await;
    assert_eq!(healthy.ids(2).await, [1, 2]);
}

#[tokio::test]
async fn what_comes_behind_a_damaged_append_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.db");
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    for run in [1, 2] {
        append(&store, run_id(run), 0, &[submitted(None)]);
    }
    store.append(run_id(1), Seq::new(1), &[turn(1), turn(2), turn(3)]).unwrap();
    append(&store, run_id(2), 1, &[turn(1)]);
    append(&store, run_id(1), 4, &[run_end()]);
    // All of it is written then.
    store.close();
    drop(store);
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(
        "CREATE TABLE aside AS SELECT * FROM append WHERE pos > 2; DELETE FROM append WHERE pos > 2",
    )
    .unwrap();

    let store = Arc::new(SqliteStore::open_for_reading(&path, Options::default()).unwrap());
    let hub = Hub::start(store, broadcast::channel(1).0, &CancellationToken::new()).await.unwrap();
    let follow = |stream| async {
        let mut reader = Reader::new(stream);
        reader.greeting().await;
        reader
    };
    let mut of_all = follow(hub.all(Pos::new(2), Filter::default(), Deltas::Without)).await;
    let mut of_damaged = follow(hub.run(run_id(1), Seq::new(1), Deltas::Without)).await;
    let mut of_other = follow(hub.run(run_id(2), Seq::new(1), Deltas::Without)).await;
    let (of_all, of_damaged, of_other, ()) = tokio::join!(
        of_all.rest(),
        of_damaged.rest(),
        of_other.ids(1),
        async {
            while hub.followers() < 3 {
                tokio::task::yield_now().await;
            }
            db.execute_batch(
                "BEGIN; UPDATE aside SET body = x'5b5d' WHERE pos = 3; INSERT INTO append SELECT * FROM aside; COMMIT",
            )
            .unwrap();
        },
    );
    for mut sent in [of_all, of_damaged] {
        let error = sent.pop().unwrap();
        assert_eq!((error.id, &*error.event, &error.data["code"]), (None, "error", &"internal".into()));
    }
    assert_eq!(of_other, [2]);
    hub.caught_up().await;
    let board = hub.board();
    assert_eq!((board.get(run_id(1)), board.get(run_id(2)).unwrap().turn), (None, 1));
    assert_eq!(board.counts().open, 1);
    let mut later = follow(hub.all(Pos::new(5), Filter::default(), Deltas::Without)).await;
    assert_eq!(later.ids(2).await, [6, 7]);
}
