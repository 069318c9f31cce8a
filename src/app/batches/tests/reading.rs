//! How batches are found and read, and which of their tasks are chosen.

use super::*;

fn from(after: usize) -> Reading {
    Reading { after, ..FOLLOW }
}

async fn read(daemon: &Daemon, id: BatchId, how: Reading) -> Vec<(String, u64, String)> {
    let lines = daemon.batches.results(id, how).await.unwrap();
    soon(lines.map(|line| told(&line.unwrap())).collect()).await
}

#[tokio::test]
async fn a_reader_goes_on_after_the_lines_that_it_has_had() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let id = daemon.submit(at_once(1), &[barred("a"), quick("b"), quick("c")]).await.unwrap().id;
    assert_eq!(read(&daemon, id, from(1)).await, [result("b", 1, "done"), result("c", 1, "done")]);
    daemon.ended(id).await;
    assert_eq!(read(&daemon, id, from(2)).await, [result("c", 1, "done")]);
    assert_eq!(read(&daemon, id, from(9)).await, []);
    soon(daemon.batches.requeue(id, Which::Task("a".to_owned()))).await.unwrap();
    // The line that it replaces still counts.
    assert_eq!(read(&daemon, id, from(3)).await, [result("a", 2, "provider_error")]);
    daemon.ended(id).await;
    assert_eq!(read(&daemon, id, from(2)).await, [result("c", 1, "done"), result("a", 2, "provider_error")]);
}

#[test]
fn batches_are_known_before_they_are_taken_up() {
    for disk in both() {
        let (open, ended) = live(&disk, async |daemon| {
            let ended = daemon.submit(keyed("done"), &[quick("a")]).await.unwrap().id;
            daemon.ended(ended).await;
            let open = daemon.submit(keyed("open"), &[quick("a"), held("b")]).await.unwrap().id;
            daemon.gate.until_asked(1).await;
            daemon.until(open, |status| status.counts.settled.len() == 1).await;
            (open, ended)
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let daemon = Daemon::starting(&disk, 100).await;
            soon(daemon.batches.load()).await.unwrap();
            assert_eq!(daemon.batches.list().await.len(), 2);
            assert_eq!(daemon.batches.get(open).await.unwrap().state, BatchState::Open);
            assert_eq!(daemon.batches.get(ended).await.unwrap().state, BatchState::Ended);
            let follows = soon(daemon.batches.results(open, FOLLOW)).await.unwrap();
            let cancels = daemon.batches.clone();
            let cancels = tokio::spawn(async move { cancels.cancel(open).await });
            soon(daemon.batches.recover()).await.unwrap();
            assert!(soon(cancels).await.unwrap().unwrap());
            let lines: Vec<_> = soon(follows.map(|line| told(&line.unwrap())).collect()).await;
            assert_eq!(lines, [result("a", 1, "done"), result("b", 1, "cancelled")]);
        });
    }
}

#[tokio::test]
async fn a_batch_is_found_by_its_id_before_its_name_and_by_a_beginning_last() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let named = |name: &str| SubmitBatch { name: Some(name.to_owned()), ..SubmitBatch::default() };
    let first = daemon.submit(named("one"), &[quick("a")]).await.unwrap().id;
    let shadow = daemon.submit(named(&first.to_string()), &[quick("a")]).await.unwrap().id;
    let latest = daemon.submit(named("one"), &[quick("a")]).await.unwrap().id;
    let find = |name: &str| daemon.batches.find(name);
    assert_eq!(find(&first.to_string()), Ok(first));
    assert_eq!(find(&first.to_string().to_uppercase()), Ok(first));
    assert_eq!(find("one"), Ok(latest));
    assert_eq!(find(&shadow.to_string()[..35]), Ok(shadow));
    assert_eq!(find("0"), Err(FindError::Many { name: "0".to_owned(), count: 3 }));
    assert_eq!(find(""), Err(FindError::None(String::new())));
    assert_eq!(find("two"), Err(FindError::None("two".to_owned())));
}

#[tokio::test]
async fn each_end_of_a_batch_can_be_told_of_once() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let id = daemon.submit(SubmitBatch::default(), &[barred("a")]).await.unwrap().id;
    let mut ends = daemon.batches.watch_ends(id).unwrap();
    assert!(daemon.batches.watch_ends(id).is_none());
    for end in 1..=3 {
        let status = soon(ends.wait_for(|status| status.ends == end)).await.unwrap().clone();
        assert_eq!((status.state, status.counts.settled.len()), (BatchState::Ended, 1));
        soon(daemon.batches.requeue(id, Which::Task("a".to_owned()))).await.unwrap();
    }
}

#[test]
fn tasks_that_are_not_chosen_are_left_as_they_are_and_not_missed() {
    for disk in both() {
        let lines = [quick("a"), barred("b"), held("c"), quick("d")];
        let only = |ids: &[&str]| {
            let mut batch = keyed("k");
            batch.options.only = ids.iter().map(|id| (*id).to_owned()).collect();
            batch
        };
        let id = live(&disk, async |daemon| {
            let unknown = daemon.submit(only(&["z"]), &lines).await;
            assert!(matches!(unknown, Err(SubmitError::NoSuchTask(id)) if id == "z"));
            let id = daemon.submit(only(&["b", "c"]), &lines).await.unwrap().id;
            daemon.gate.until_asked(1).await;
            let again = daemon.submit(only(&["c"]), &lines).await.unwrap();
            assert_eq!(again, Submitted { id, changed: false, tasks: 4 });
            let busy = daemon.submit(only(&["d"]), &lines).await;
            assert!(matches!(busy, Err(SubmitError::Busy { .. })));
            id
        });
        live(&disk, async |daemon| {
            daemon.gate.open.add_permits(1);
            assert_eq!(
                sorted(daemon.results(id).await),
                [result("b", 1, "provider_error"), result("c", 1, "done")]
            );
            daemon.ended(id).await;
            assert_eq!(daemon.attempts().await, ["b", "c"]);
            let mut first = keyed("k");
            first.options.first = Some(1);
            assert!(daemon.submit(first.clone(), &lines).await.unwrap().changed);
            assert_eq!(daemon.results(id).await.len(), 3);
            daemon.ended(id).await;
            assert!(!daemon.submit(first, &lines).await.unwrap().changed);
            assert!(daemon.submit(keyed("k"), &lines).await.unwrap().changed);
            assert_eq!(daemon.results(id).await.len(), 4);
            assert_eq!(daemon.attempts().await, ["a", "b", "c", "d"]);
        });
    }
}

#[test]
fn what_is_of_record_is_whole_however_many_runs_there_are() {
    let disk = Disk::in_memory();
    let lines: Vec<_> = (0..1_203).map(|n| quick(&n.to_string())).collect();
    let id = live(&disk, async |daemon| {
        let id = daemon.submit(keyed("k"), &lines).await.unwrap().id;
        daemon.ended(id).await;
        id
    });
    live(&disk, async |daemon| {
        assert_eq!(daemon.results(id).await.len(), lines.len());
        let mut again = keyed("k");
        again.options.retry_failed = crate::domain::batch::RetryFailed::All;
        assert!(!daemon.submit(again, &lines).await.unwrap().changed);
    });
}
