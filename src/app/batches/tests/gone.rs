//! What lines and rows name may be gone by the time it is needed.

use super::*;
use crate::domain::batch::Halt;

/// The line with a workspace of its own, which is made.
fn placed(disk: &Disk, mut line: Value) -> String {
    let folder = disk.folder.path().join(line["id"].as_str().unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    line["workspace"] = json!(folder);
    format!("{line}\n")
}

fn remove(disk: &Disk, id: &str) {
    std::fs::remove_dir(disk.folder.path().join(id)).unwrap();
}

#[test]
fn a_restart_goes_on_though_what_finished_lines_name_is_gone() {
    for disk in both() {
        let lines = [quick("a"), held("b"), quick("c")].map(|line| placed(&disk, line)).concat();
        let id = live(&disk, async |daemon| {
            let id = daemon.submit_text(at_once(1), lines).await.unwrap().id;
            daemon.gate.until_asked(1).await;
            id
        });
        remove(&disk, "a");
        live(&disk, async |daemon| {
            daemon.gate.open.add_permits(1);
            let done = ["a", "b", "c"].map(|id| result(id, 1, "done"));
            assert_eq!(sorted(daemon.results(id).await), done);
        });
    }
}

#[tokio::test]
async fn a_line_whose_workspace_is_gone_fails_with_the_reason_and_the_batch_goes_on() {
    for disk in both() {
        let daemon = Daemon::start(&disk).await;
        let lines = [held("a"), quick("b"), quick("c")].map(|line| placed(&disk, line)).concat();
        let id = daemon.submit_text(at_once(1), lines).await.unwrap().id;
        daemon.gate.until_asked(1).await;
        remove(&disk, "b");
        daemon.gate.open.add_permits(1);
        let lines = daemon.batches.results(id, FOLLOW).await.unwrap();
        let lines: Vec<_> = soon(lines.map(Result::unwrap).collect()).await;
        let told: Vec<_> = lines.iter().map(|line| told(line)).collect();
        assert_eq!(told, [result("a", 1, "done"), result("b", 1, "failed"), result("c", 1, "done")]);
        let line: Value = serde_json::from_slice(&lines[1]).unwrap();
        assert_eq!(line["detail"], "setup");
        let error = line["error"].as_str().unwrap();
        assert!(error.starts_with("workspace: ") && error.contains("does not exist"), "{error}");
        let status = daemon.ended(id).await;
        assert_eq!((status.state, status.error), (BatchState::Ended, None));
        std::fs::create_dir(disk.folder.path().join("b")).unwrap();
        soon(daemon.batches.requeue(id, Which::Task("b".to_owned()))).await.unwrap();
        assert_eq!(sorted(daemon.results(id).await)[1], result("b", 2, "done"));
    }
}

#[test]
fn a_row_that_is_not_understood_is_told_of_and_keeps_its_input() {
    let disk = Disk::in_memory();
    let (odd, whole) = live(&disk, async |daemon| {
        let odd = daemon.submit(keyed("odd"), &[held("a")]).await.unwrap().id;
        let whole = daemon.submit(keyed("whole"), &[held("a")]).await.unwrap().id;
        daemon.gate.until_asked(2).await;
        let mut row = daemon.store.batches().await.unwrap().remove(0);
        row.options = row.options.replace(r#""state":"open""#, r#""state":"of another age""#);
        daemon.store.durable(daemon.store.record_batch(row, Vec::new()).unwrap()).await.unwrap();
        (odd, whole)
    });
    live(&disk, async |daemon| {
        assert_eq!(disk.inputs().len(), 2);
        let status = daemon.batches.get(odd).await.unwrap();
        assert_eq!(status.state, BatchState::Open);
        assert!(status.error.as_ref().unwrap().contains("of another age"), "{status:?}");
        assert!(daemon.batches.cancel(odd).await.is_err());
        daemon.batches.take_up_the_rest();
        daemon.gate.open.add_permits(1);
        assert_eq!(daemon.results(whole).await, [result("a", 1, "done")]);
        let row = daemon.store.batches().await.unwrap().remove(0);
        assert!(row.options.contains("of another age"), "{row:?}");
        daemon.batches.close();
        soon(daemon.batches.closed()).await;
        assert_eq!(daemon.batches.get(odd).await.unwrap(), status);
    });
}

#[tokio::test]
async fn tasks_that_are_done_again_are_not_cancelled_for_what_failed_before() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let mut batch = at_once(3);
    batch.options.halt = "now,fail=1".parse::<Halt>().ok();
    let held_then_barred = |id: &str| json!({ "id": id, "task": "t", "model": GATED, "script": [{ "fault": { "status": 401 } }] });
    let lines = ["a", "b", "c"].map(held_then_barred);
    let id = daemon.submit(batch, &lines).await.unwrap().id;
    daemon.gate.until_asked(3).await;
    daemon.gate.open.add_permits(1);
    let status = daemon.ended(id).await;
    assert!(status.halted && status.counts.settled.get("cancelled") == Some(&2), "{status:?}");
    for task in ["a", "b", "c"] {
        soon(daemon.batches.requeue(id, Which::Task(task.to_owned()))).await.unwrap();
    }
    daemon.gate.until_asked(6).await;
    daemon.gate.open.add_permits(1);
    daemon.until(id, |status| status.counts.in_flight == 2).await;
    daemon.gate.open.add_permits(2);
    let again = ["a", "b", "c"].map(|id| result(id, 2, "provider_error"));
    assert_eq!(sorted(daemon.results(id).await), again);
}

#[tokio::test]
async fn a_script_file_is_not_read_for_a_submission() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let line = json!({ "id": "a", "task": "t", "script": "/dev/zero" });
    let refused = daemon.submit(SubmitBatch::default(), &[line]).await.unwrap_err();
    assert_eq!(refused.to_string(), "line 1: script: want the replies themselves, not a file");
}

#[tokio::test]
async fn a_batch_that_has_lost_a_line_is_not_at_fault_before_the_others_are_over() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let id = daemon.submit(at_once(1), &[held("a"), held("b"), held("c")]).await.unwrap().id;
    daemon.gate.until_asked(1).await;
    let input = daemon.disk.folder.path().join("batches").join(&daemon.disk.inputs()[0]);
    let text = std::fs::read_to_string(&input).unwrap();
    std::fs::write(&input, text.replace(r#""id":"b""#, r#""id":"x""#)).unwrap();
    let lines = daemon.batches.results(id, FOLLOW).await.unwrap();
    daemon.gate.open.add_permits(1);
    daemon.gate.until_asked(2).await;
    let status = daemon.until(id, |status| status.counts.in_flight == 1 && status.counts.waiting == 0).await;
    assert_eq!((status.state, status.error), (BatchState::Open, None));
    daemon.gate.open.add_permits(1);
    let lines: Vec<_> = soon(lines.collect()).await;
    assert!(matches!(&lines[..], [Ok(_), Ok(_), Err(ResultsError::Unfinished)]), "{lines:?}");
    let status = daemon.batches.get(id).await.unwrap();
    assert!(status.error.as_ref().unwrap().contains("it has changed"), "{status:?}");
    assert_eq!((status.state, status.counts.in_flight), (BatchState::Open, 0));
}
