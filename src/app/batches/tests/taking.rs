//! What is taken on, and what is not.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::domain::batch::{RetryFailed, StaleLines};

#[tokio::test]
async fn a_batch_is_on_disk_when_its_submission_is_answered_and_each_task_has_one_result() {
    for disk in both() {
        let daemon = Daemon::start(&disk).await;
        let submitted = daemon.submit(SubmitBatch::default(), &[quick("a"), barred("b"), quick("c")]).await;
        let Submitted { id, changed, tasks } = submitted.unwrap();
        assert!(changed && tasks == 3);
        assert_eq!(daemon.store.batches().await.unwrap().len(), 1);
        let [input] = &disk.inputs()[..] else { panic!("{:?}", disk.inputs()) };
        let folder = disk.folder.path().join("batches");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(input))), (0o700, 0o600));
        let results = sorted(daemon.results(id).await);
        assert_eq!(
            results,
            [result("a", 1, "done"), result("b", 1, "provider_error"), result("c", 1, "done")]
        );
        let status = daemon.ended(id).await;
        assert_eq!((status.name.as_str(), status.state), ("batch", BatchState::Ended));
        let settled = BTreeMap::from([("done".to_owned(), 2), ("provider_error".to_owned(), 1)]);
        assert_eq!(status.counts.settled, settled);
        assert_eq!((status.counts.waiting, status.counts.in_flight), (0, 0));
        assert!(status.counts.usage.output > 0);
        assert_eq!(daemon.batches.list().await, [status]);
    }
}

#[tokio::test]
async fn a_mistake_on_line_three_runs_nothing_and_leaves_nothing_behind() {
    let daemon = Daemon::start(&Disk::new()).await;
    let wrong = json!({ "id": "c", "task": "t", "model": "nobody" });
    let refused = daemon.submit(keyed("k"), &[quick("a"), quick("b"), wrong, quick("d")]).await;
    let told = refused.unwrap_err().to_string();
    assert!(told.starts_with("line 3: model: no model is called \"nobody\""), "{told}");
    assert_eq!(daemon.disk.inputs(), [""; 0]);
    assert_eq!(daemon.batches.list().await, []);
    assert_eq!((daemon.store.batches().await.unwrap(), daemon.attempts().await), (vec![], vec![]));
    let empty = daemon.submit_text(keyed("k"), "\n\n".to_owned()).await;
    assert!(matches!(empty, Err(SubmitError::Empty)));
    assert!(daemon.submit(keyed("k"), &[quick("a")]).await.unwrap().changed);
}

#[tokio::test]
async fn an_input_that_breaks_off_leaves_nothing_behind() {
    let daemon = Daemon::start(&Disk::new()).await;
    let line = daemon.complete(&quick("a")).to_string();
    let input = [Ok(line.into_bytes()), Err(std::io::Error::other("gone"))];
    let broken = daemon.batches.submit(keyed("k"), stream::iter(input)).await;
    assert!(matches!(broken, Err(SubmitError::Spool(SpoolError::BrokeOff(_)))));
    assert_eq!(daemon.disk.inputs(), [""; 0]);
}

#[tokio::test]
async fn a_line_of_twenty_megabytes_is_a_task_like_any_other() {
    let daemon = Daemon::start(&Disk::new()).await;
    let mut big = quick("big");
    big["task"] = json!("x".repeat(20 << 20));
    let id = daemon.submit(SubmitBatch::default(), &[quick("a"), big]).await.unwrap().id;
    assert_eq!(sorted(daemon.results(id).await), [result("a", 1, "done"), result("big", 1, "done")]);
}

#[tokio::test]
async fn one_key_given_twice_at_the_same_time_makes_one_batch() {
    for disk in both() {
        let daemon = Daemon::start(&disk).await;
        let lines = [quick("a"), held("b")];
        let (one, other) = tokio::join!(daemon.submit(keyed("k"), &lines), daemon.submit(keyed("k"), &lines));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.id, other.id);
        assert!(one.changed != other.changed, "{one:?} {other:?}");
        daemon.gate.open.add_permits(1);
        daemon.ended(one.id).await;
        let again = daemon.submit(keyed("k"), &lines).await.unwrap();
        assert_eq!(again, Submitted { id: one.id, changed: false, tasks: 2 });
        assert_eq!(daemon.attempts().await, ["a", "b"]);
        assert_eq!(disk.inputs().len(), 1);
    }
}

#[tokio::test]
async fn a_batch_that_has_ended_is_extended_under_its_key_if_the_input_fits() {
    for disk in both() {
        let daemon = Daemon::start(&disk).await;
        let id = daemon.submit(keyed("k"), &[quick("a"), held("b")]).await.unwrap().id;
        let busy = daemon.submit(keyed("k"), &[quick("a"), held("b"), quick("c")]).await;
        assert!(matches!(busy, Err(SubmitError::Busy { id: known }) if known == id));
        daemon.gate.open.add_permits(1);
        daemon.ended(id).await;
        let lacking = daemon.submit(keyed("k"), &[quick("a")]).await;
        assert!(matches!(lacking, Err(SubmitError::Misfit { .. })));
        let stale = daemon.submit(keyed("k"), &[quick("a"), barred("b")]).await;
        assert!(matches!(stale, Err(SubmitError::Misfit { .. })));

        let more = daemon.submit(keyed("k"), &[quick("c"), quick("a"), held("b")]).await.unwrap();
        assert_eq!(more, Submitted { id, changed: true, tasks: 3 });
        let results = sorted(daemon.results(id).await);
        assert_eq!(results, [result("a", 1, "done"), result("b", 1, "done"), result("c", 1, "done")]);

        daemon.ended(id).await;
        let mut changed = keyed("k");
        changed.options.stale_lines = StaleLines::Restart;
        assert!(daemon.submit(changed, &[quick("a"), barred("b"), quick("c")]).await.unwrap().changed);
        let results = sorted(daemon.results(id).await);
        assert_eq!(results[1], result("b", 2, "provider_error"));

        daemon.ended(id).await;
        let mut again = keyed("k");
        again.options.retry_failed = RetryFailed::All;
        assert!(daemon.submit(again, &[quick("a"), barred("b"), quick("c")]).await.unwrap().changed);
        assert_eq!(sorted(daemon.results(id).await)[1], result("b", 3, "provider_error"));
        assert_eq!(daemon.attempts().await, ["a", "b", "b", "b", "c"]);
        assert_eq!((daemon.batches.list().await.len(), disk.inputs().len()), (1, 1));
    }
}
