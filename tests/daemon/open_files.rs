//! What the daemon keeps open.

use std::fs;

use serde_json::json;

use crate::process::{Daemon, House, task, until};

/// The files of the state that the daemon has open.
fn open_files(house: &House, daemon: &Daemon) -> usize {
    let state = fs::canonicalize(house.state()).unwrap();
    let all = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let open = all.filter_map(|one| fs::read_link(one.unwrap().path()).ok());
    open.filter(|path| path.starts_with(&state)).count()
}

#[tokio::test]
async fn three_hundred_runs_leave_no_file_of_the_state_open() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let mut counts = Vec::new();
    for round in 0..6 {
        let turn = json!({"calls": [{"name": "list", "arguments": {}}]});
        let one = |place: usize| task(&house, &format!("{round}-{place}"), json!([turn, {"text": "ready"}]));
        let batch = daemon.batch(&(0..50).map(one).collect::<Vec<_>>(), &[]).await;
        assert_eq!(daemon.until_batch_ends(&batch).await["ended"], json!({"done": 50}));
        assert_eq!(daemon.results(&batch).await.len(), 50);
        // Those that stay may be opened when they are first needed, in the first two rounds.
        match counts.get(1) {
            Some(most) => {
                // The input of a batch may be closed a little after its end is shown.
                until("no more are open", || open_files(&house, &daemon) <= *most).await;
            }
            None => counts.push(open_files(&house, &daemon)),
        }
    }
    assert!(counts[0] > 0);
    daemon.stop().await;
}
