//! What is asked of batches under way, and how they share.

use super::*;
use crate::{
    app::input::InputError,
    domain::{batch::Halt, usage::NanoUsd},
};

#[tokio::test]
async fn two_batches_share_the_slots_fairly_and_keep_to_their_own_bounds() {
    for disk in both() {
        let daemon = Daemon::with_slots(&disk, 2).await;
        let tasks = |name: &str| (0..4).map(|n| held(&format!("{name}{n}"))).collect::<Vec<_>>();
        let one = daemon.submit(at_once(4), &tasks("a")).await.unwrap().id;
        daemon.gate.until_asked(2).await;
        let other = daemon.submit(at_once(1), &tasks("b")).await.unwrap().id;
        daemon.until(one, |status| status.counts.in_flight == 4).await;
        daemon.until(other, |status| status.counts.in_flight == 1).await;
        assert_eq!(daemon.batches.get(one).await.unwrap().running, 2);
        daemon.gate.open.add_permits(2);
        daemon.gate.until_asked(4).await;
        let live = daemon.supervisor.load().await.by_batch;
        assert_eq!(live, BTreeMap::from([(Some(one), 1), (Some(other), 1)]));
        daemon.gate.open.add_permits(6);
        assert_eq!((daemon.results(one).await.len(), daemon.results(other).await.len()), (4, 4));
    }
}

#[tokio::test]
async fn a_cancelled_batch_starts_nothing_more_and_leaves_others_alone() {
    for disk in both() {
        let daemon = Daemon::start(&disk).await;
        let one = daemon.submit(at_once(2), &[quick("a"), held("b"), held("c"), held("d")]).await.unwrap().id;
        let other = daemon.submit(at_once(2), &[held("x")]).await.unwrap().id;
        daemon.gate.until_asked(3).await;
        assert!(daemon.batches.cancel(one).await.unwrap());
        assert!(!daemon.batches.cancel(one).await.unwrap());
        let status = daemon.ended(one).await;
        assert_eq!((status.state, status.counts.waiting), (BatchState::Cancelled, 1));
        let results = sorted(daemon.results(one).await);
        assert_eq!(
            results,
            [result("a", 1, "done"), result("b", 1, "cancelled"), result("c", 1, "cancelled")]
        );
        daemon.gate.open.add_permits(1);
        assert_eq!(daemon.results(other).await, [result("x", 1, "done")]);
        assert_eq!(daemon.attempts().await, ["a", "b", "c", "x"]);
    }
}

#[tokio::test]
async fn how_many_runs_are_in_flight_is_changed_while_they_are() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let tasks: Vec<_> = (0..5).map(|n| held(&n.to_string())).collect();
    let id = daemon.submit(at_once(1), &tasks).await.unwrap().id;
    daemon.gate.until_asked(1).await;
    let three = std::num::NonZeroUsize::new(3).unwrap();
    assert!(daemon.batches.set_concurrency(id, three).await.unwrap());
    assert!(!daemon.batches.set_concurrency(id, three).await.unwrap());
    daemon.gate.until_asked(3).await;
    daemon.gate.open.add_permits(5);
    assert_eq!(daemon.results(id).await.len(), 5);
}

#[tokio::test]
async fn a_batch_gives_up_when_too_many_tasks_fail() {
    for (halt, last) in [("soon,fail=1", "done"), ("now,fail=1", "cancelled")] {
        let daemon = Daemon::start(&Disk::in_memory()).await;
        let mut batch = at_once(2);
        batch.options.halt = halt.parse::<Halt>().ok();
        let lines = [held("a"), barred("b"), quick("c"), quick("d")];
        let id = daemon.submit(batch, &lines).await.unwrap().id;
        daemon.until(id, |status| status.halted).await;
        if last == "done" {
            daemon.gate.open.add_permits(1);
        }
        assert_eq!(daemon.results(id).await, [result("b", 1, "provider_error"), result("a", 1, last)]);
        let status = daemon.ended(id).await;
        assert_eq!((status.state, status.halted, status.counts.waiting), (BatchState::Ended, true, 2));
        assert_eq!(daemon.attempts().await, ["a", "b"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_may_yet_succeed_is_tried_again_and_has_one_result() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let down = json!({ "fault": { "status": 503 } });
    let task = json!({ "id": "a", "task": "t", "script": [down, down, down, down, down, down] });
    let mut batch = SubmitBatch::default();
    batch.options.retries = 2;
    let id = daemon.submit(batch, &[task, barred("b")]).await.unwrap().id;
    let results = daemon.results(id).await;
    assert_eq!(results, [result("b", 1, "provider_error"), result("a", 3, "provider_error")]);
    let status = daemon.ended(id).await;
    assert_eq!(status.counts.settled, BTreeMap::from([("provider_error".to_owned(), 2)]));
}

#[tokio::test]
async fn who_follows_is_told_of_each_result_as_it_comes_and_who_does_not_of_those_of_record() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let id = daemon.submit(SubmitBatch::default(), &[quick("a"), held("b")]).await.unwrap().id;
    let lines = daemon
        .batches
        .results(id, Reading { follow: true, with_messages: true, ..Reading::default() })
        .await
        .unwrap();
    let mut lines = std::pin::pin!(lines);
    let first = soon(lines.next()).await.unwrap().unwrap();
    assert_eq!(told(&first), result("a", 1, "done"));
    let messages = serde_json::from_slice::<Value>(&first).unwrap()["messages"].clone();
    assert_eq!(messages.as_array().unwrap().last().unwrap()["content"], "done");
    let so_far = daemon.batches.results(id, Reading::default()).await.unwrap();
    assert_eq!(so_far.count().await, 1);
    daemon.gate.open.add_permits(1);
    assert_eq!(told(&soon(lines.next()).await.unwrap().unwrap()), result("b", 1, "done"));
    assert!(soon(lines.next()).await.is_none());
}

#[tokio::test]
async fn a_settled_task_is_done_again_and_its_latest_attempt_is_the_result() {
    for disk in both() {
        let daemon = Daemon::start(&disk).await;
        let id = daemon.submit(SubmitBatch::default(), &[barred("a"), held("b")]).await.unwrap().id;
        daemon.until(id, |status| status.counts.settled.len() == 1).await;
        let of = |task: &str| Which::Task(task.to_owned());
        let second = soon(daemon.batches.requeue(id, of("a"))).await.unwrap();
        let unsettled = daemon.batches.requeue(id, of("b")).await;
        assert!(matches!(unsettled, Err(RequeueError::Unsettled)), "{unsettled:?}");
        let unknown = daemon.batches.requeue(id, of("z")).await;
        assert!(matches!(unknown, Err(RequeueError::NoSuchTask)), "{unknown:?}");
        daemon.gate.open.add_permits(1);
        daemon.ended(id).await;
        assert_eq!(
            sorted(daemon.results(id).await),
            [result("a", 2, "provider_error"), result("b", 1, "done")]
        );
        soon(daemon.batches.requeue(id, Which::Run(second))).await.unwrap();
        assert_eq!(
            sorted(daemon.results(id).await),
            [result("a", 3, "provider_error"), result("b", 1, "done")]
        );
        let status = daemon.ended(id).await;
        assert_eq!(status.counts.settled.values().sum::<usize>(), 2);
        assert_eq!(daemon.attempts().await, ["a", "a", "a", "b"]);
    }
}

#[tokio::test]
async fn a_task_of_a_cancelled_batch_is_done_again_and_nothing_else_of_it_starts() {
    for disk in both() {
        let daemon = Daemon::start(&disk).await;
        let id = daemon.submit(at_once(1), &[quick("a"), held("b"), quick("c")]).await.unwrap().id;
        daemon.gate.until_asked(1).await;
        assert!(daemon.batches.cancel(id).await.unwrap());
        assert_eq!(daemon.results(id).await, [result("a", 1, "done"), result("b", 1, "cancelled")]);
        soon(daemon.batches.requeue(id, Which::Task("b".to_owned()))).await.unwrap();
        daemon.gate.open.add_permits(1);
        assert_eq!(sorted(daemon.results(id).await), [result("a", 1, "done"), result("b", 2, "done")]);
        assert_eq!(daemon.ended(id).await.counts.waiting, 1);
        assert_eq!(daemon.attempts().await, ["a", "b", "b"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_done_again_and_cancelled_just_as_the_batch_ends_is_cancelled() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let id = daemon.submit(at_once(1), &[held("a"), held("b")]).await.unwrap().id;
    daemon.gate.open.add_permits(1);
    daemon.gate.until_asked(2).await;
    let entry = daemon.batches.entry(id).unwrap();
    let work = entry.work.lock().await;
    // Each waits for its turn before the next comes: whoever drives the batch is the last.
    let idle = || tokio::time::sleep(Duration::from_secs(1));
    let batches = daemon.batches.clone();
    let requeued = tokio::spawn(async move { batches.requeue(id, Which::Task("a".to_owned())).await });
    idle().await;
    let batches = daemon.batches.clone();
    let cancelled = tokio::spawn(async move { batches.cancel(id).await });
    idle().await;
    daemon.gate.open.add_permits(1);
    daemon.until(id, |status| status.counts.settled.get("done") == Some(&2)).await;
    idle().await;
    drop(work);
    soon(requeued).await.unwrap().unwrap();
    assert!(soon(cancelled).await.unwrap().unwrap());
    assert_eq!(sorted(daemon.results(id).await), [result("a", 2, "cancelled"), result("b", 1, "done")]);
    let status = daemon.ended(id).await;
    assert_eq!((status.state, status.error), (BatchState::Cancelled, None));
}

#[tokio::test]
async fn a_cap_is_not_set_later_on_a_batch_whose_tasks_cost_nobody_knows_what() {
    let daemon = Daemon::start(&Disk::in_memory()).await;
    let tasks = [held("a"), held("b")];
    let id = daemon.submit(keyed("k"), &tasks).await.unwrap().id;
    let refused = daemon.batches.set_max_cost(id, Some(NanoUsd::from_usd(1.0))).await.unwrap_err();
    let ControlError::Unpriced(InputError::Mistakes { told, more: 0 }) = refused else { panic!("{refused}") };
    assert!(
        told.len() == 1 && told[0].starts_with("line 1: model: model \"scripted:gated\" has no"),
        "{told:?}"
    );
    let mut again = keyed("k");
    again.options.max_cost = Some(NanoUsd::from_usd(1.0));
    assert!(matches!(daemon.submit(again, &tasks).await, Err(SubmitError::Input(_))));
    assert!(!daemon.batches.set_max_cost(id, None).await.unwrap(), "there is none");
    daemon.gate.open.add_permits(2);
    assert_eq!(daemon.results(id).await.len(), 2);
}
