//! A daemon that was killed, or stopped, and its batches in the next one.

use super::*;
use crate::domain::task::TaskSpec;

#[test]
fn after_a_kill_each_task_is_done_once_and_the_results_are_whole() {
    for disk in both() {
        let lines = [quick("a"), barred("b"), held("c"), held("d"), held("e"), held("f")];
        let (id, single) = live(&disk, async |daemon| {
            let mut batch = at_once(3);
            batch.key = Some("k".to_owned());
            let id = daemon.submit(batch, &lines).await.unwrap().id;
            let spec = daemon.complete(&json!({ "task": "t", "attempt": 1, "model": GATED }));
            let spec: TaskSpec = serde_json::from_value(spec).unwrap();
            let single =
                daemon.supervisor.submit(crate::app::state::new_run(), Arc::new(spec)).await.unwrap();
            daemon.gate.until_asked(4).await;
            daemon.until(id, |status| status.counts.settled.len() == 2).await;
            (id, single.run)
        });
        std::fs::write(disk.folder.path().join("batches/.arriving-1"), "half").unwrap();
        live(&disk, async |daemon| {
            assert_eq!(daemon.recovered.others, [single]);
            assert_eq!(daemon.recovered.of_batches.len(), 3);
            assert_eq!(disk.inputs().len(), 1);
            daemon.gate.until_asked(3).await;
            let again = daemon.submit(keyed("k"), &lines).await.unwrap();
            assert_eq!(again, Submitted { id, changed: false, tasks: 6 });
            daemon.gate.open.add_permits(4);
            let results = sorted(daemon.results(id).await);
            let done = ["c", "d", "e", "f"].map(|id| result(id, 1, "done"));
            assert_eq!(results[..2], [result("a", 1, "done"), result("b", 1, "provider_error")]);
            assert_eq!(results[2..], done);
            assert_eq!(daemon.ended(id).await.state, BatchState::Ended);
            assert_eq!(daemon.attempts().await, ["-", "a", "b", "c", "d", "e", "f"]);
        });
        live(&disk, async |daemon| {
            assert_eq!(daemon.recovered.of_batches, []);
            let status = daemon.batches.get(id).await.unwrap();
            assert_eq!((status.state, status.counts.settled.get("done")), (BatchState::Ended, Some(&5)));
            assert_eq!(daemon.results(id).await.len(), 6);
            soon(daemon.batches.requeue(id, Which::Task("b".to_owned()))).await.unwrap();
            let results = sorted(daemon.results(id).await);
            assert_eq!(results[1], result("b", 2, "provider_error"));
        });
    }
}

#[test]
fn the_runs_of_a_batch_that_is_cancelled_before_they_are_gone_on_with_have_their_results() {
    for disk in both() {
        let id = live(&disk, async |daemon| {
            let id = daemon.submit(at_once(2), &[held("a"), held("b"), held("c")]).await.unwrap().id;
            daemon.gate.until_asked(2).await;
            daemon.batches.set_concurrency(id, std::num::NonZeroUsize::MIN).await.unwrap();
            id
        });
        let results = [result("a", 1, "cancelled"), result("b", 1, "cancelled")];
        live(&disk, async |daemon| {
            daemon.gate.until_asked(1).await;
            let lines = daemon.batches.results(id, FOLLOW).await.unwrap();
            let lines = lines.map(|line| told(&line.unwrap())).collect::<Vec<_>>();
            assert!(daemon.batches.cancel(id).await.unwrap());
            assert_eq!(sorted(soon(lines).await), results);
            let counts = daemon.ended(id).await.counts;
            assert_eq!((counts.waiting, counts.settled.get("cancelled")), (1, Some(&2)));
        });
        live(&disk, async |daemon| {
            let counts = daemon.batches.get(id).await.unwrap().counts;
            assert_eq!((counts.waiting, counts.settled.get("cancelled")), (1, Some(&2)));
            assert_eq!(sorted(daemon.results(id).await), results);
        });
    }
}

#[test]
fn a_stop_leaves_the_batch_open_and_tells_who_follows() {
    for disk in both() {
        let id = live(&disk, async |daemon| {
            let id = daemon.submit(at_once(1), &[quick("a"), held("b"), quick("c")]).await.unwrap().id;
            daemon.gate.until_asked(1).await;
            let lines = daemon.batches.results(id, FOLLOW).await.unwrap();
            daemon.batches.close();
            daemon.supervisor.drain(Duration::ZERO).await;
            soon(daemon.batches.closed()).await;
            let lines: Vec<_> = soon(lines.collect()).await;
            assert!(matches!(&lines[..], [Ok(_), Err(ResultsError::Unfinished)]), "{lines:?}");
            let status = daemon.batches.get(id).await.unwrap();
            assert_eq!((status.state, status.error), (BatchState::Open, None));
            let refused = daemon.submit(SubmitBatch::default(), &[quick("x")]).await;
            assert!(matches!(refused, Err(SubmitError::Stopping)));
            assert_eq!(daemon.attempts().await, ["a", "b"]);
            id
        });
        live(&disk, async |daemon| {
            daemon.gate.open.add_permits(1);
            assert_eq!(daemon.results(id).await.len(), 3);
            assert_eq!(daemon.attempts().await, ["a", "b", "c"]);
        });
    }
}

#[test]
fn a_batch_without_its_input_says_so_and_nothing_else_suffers() {
    let disk = Disk::new();
    let (lost, damaged, whole) = live(&disk, async |daemon| {
        let mut ids = Vec::new();
        for key in ["lost", "damaged", "whole"] {
            ids.push(daemon.submit(keyed(key), &[quick("a"), held("b")]).await.unwrap().id);
        }
        daemon.gate.until_asked(3).await;
        for id in &ids {
            daemon.until(*id, |status| status.counts.settled.len() == 1).await;
        }
        (ids[0], ids[1], ids[2])
    });
    for name in disk.inputs() {
        let path = disk.folder.path().join("batches").join(&name);
        if name.starts_with(&lost.to_string()) {
            std::fs::remove_file(path).unwrap();
        } else if name.starts_with(&damaged.to_string()) {
            std::fs::write(path, "{}\n").unwrap();
        }
    }
    live(&disk, async |daemon| {
        daemon.gate.open.add_permits(1);
        assert_eq!(daemon.results(whole).await.len(), 2);
        for (id, why) in [(lost, "cannot be read"), (damaged, "is not the input that was submitted")] {
            let status = daemon.until(id, |status| status.error.is_some()).await;
            assert!(status.error.as_ref().unwrap().contains(why), "{status:?}");
            assert_eq!((status.state, status.counts.tasks), (BatchState::Open, 2));
            let so_far = daemon.batches.results(id, Reading::default()).await.unwrap();
            assert_eq!(so_far.count().await, 1);
        }
        // It goes on once it has its input again.
        let again = daemon.submit(keyed("lost"), &[quick("a"), held("b")]).await.unwrap();
        assert_eq!(again, Submitted { id: lost, changed: true, tasks: 2 });
        daemon.gate.open.add_permits(1);
        assert_eq!(daemon.results(lost).await.len(), 2);
        assert_eq!(daemon.ended(lost).await.error, None);
        // Or it is given up.
        assert!(daemon.batches.cancel(damaged).await.unwrap());
        let status = daemon.ended(damaged).await;
        assert_eq!(status.counts.settled.get("cancelled"), Some(&1));
    });
}

#[test]
fn a_batch_that_was_cancelled_just_before_a_kill_is_ended_at_the_next_start() {
    let disk = Disk::in_memory();
    let (id, _work) = live(&disk, async |daemon| {
        let id = daemon.submit(at_once(1), &[held("a"), held("b")]).await.unwrap().id;
        daemon.gate.until_asked(1).await;
        let entry = daemon.batches.entry(id).unwrap();
        let mut work = entry.work.clone().lock_owned().await;
        let record =
            crate::app::batches::record::Record { state: BatchState::Cancelled, ..work.record.clone() };
        entry.write(&*daemon.store, &mut work, record, Vec::new()).await.unwrap();
        // Kept, lest what is left of this life ends the batch as its runtime goes down.
        (id, work)
    });
    live(&disk, async |daemon| {
        assert_eq!(daemon.recovered.of_batches.len(), 1);
        assert_eq!(daemon.results(id).await, [result("a", 1, "cancelled")]);
        assert_eq!(daemon.attempts().await, ["a"]);
    });
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_another_attempt_when_herder_stops_has_it_in_the_next_life() {
    let disk = Disk::in_memory();
    let daemon = Daemon::start(&disk).await;
    let down = json!({ "fault": { "status": 503 } });
    let task = json!({ "id": "a", "task": "t", "script": [down, down, down, down, down] });
    let mut batch = SubmitBatch::default();
    batch.options.retries = 1;
    let id = daemon.submit(batch, &[task]).await.unwrap().id;
    daemon.until(id, |status| status.counts.in_flight == 1).await;
    daemon.until(id, |status| status.counts.in_flight == 0).await;
    daemon.batches.close();
    daemon.supervisor.drain(Duration::ZERO).await;
    soon(daemon.batches.closed()).await;
    assert_eq!(daemon.batches.get(id).await.unwrap().state, BatchState::Open);
    let daemon = Daemon::start(&disk).await;
    assert_eq!(daemon.results(id).await, [result("a", 2, "provider_error")]);
    assert_eq!(daemon.attempts().await, ["a", "a"]);
}
