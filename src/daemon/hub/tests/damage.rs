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
    let store = Arc::new(SqliteStore::open(&path, Options::default()).unwrap());
    // While it is open: what is damaged before is mended as it opens.
    let db = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(db.execute("UPDATE append SET body = x'5b5d' WHERE pos = 4", []).unwrap(), 1);
    drop(db);

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
