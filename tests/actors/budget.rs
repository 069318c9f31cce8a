//! Runs that cost money: no cap is passed, whatever the server does, and what is of record is what was counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use herder::{
    actor::supervisor::{Submitted, Unended},
    domain::{
        budget::{Node, Standing},
        event::Event,
        id::BatchId,
        run::Input,
        usage::{Limits, NanoUsd, Price},
    },
    model::{
        http,
        openai::{OpenAi, Settings},
    },
};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::{
    stage::{PATIENCE, Plan, Stage},
    support::{
        bill::{Bill, INPUT, Manner, OUTPUT},
        server::{Answer, Server, Step},
    },
};

const BATCH: Uuid = Uuid::from_u128(7);

fn price() -> Price {
    let per_million = |nano: u64| NanoUsd::new(nano * 1_000_000);
    let (input, output) = (per_million(INPUT), per_million(OUTPUT));
    Price { input, cached: input, cache_written: input, output }
}

async fn stage(server: &Server) -> Stage {
    priced(server, Some(price())).await
}

async fn priced(server: &Server, price: Option<Price>) -> Stage {
    let settings = Settings { base_url: server.base_url(), ..Settings::default() };
    let provider = OpenAi::new(http::client().unwrap(), settings).unwrap();
    let plan = Plan { provider: Arc::new(provider), price, ..Plan::default() };
    let plan = plan.settings(|settings| settings.max_live_runs = 200);
    plan.start_in(Arc::new(TempDir::new().unwrap())).await
}

fn batch() -> Node {
    Node::Batch(BatchId::new(BATCH))
}

async fn standing(stage: &Stage, node: &Node) -> Standing {
    let accounts: BTreeMap<Node, Standing> = stage.supervisor.accounts().await.into_iter().collect();
    accounts.get(node).copied().unwrap_or_default()
}

fn task(max_tokens: u32) -> Value {
    json!({"script": null, "batch": BATCH, "tools": ["read"], "params": {"max_tokens": max_tokens}})
}

/// Three turns, the last of which says something.
fn three_turns(bill: &Bill, request: &Value, manner: Manner) -> Answer {
    let messages = request["messages"].as_array().unwrap();
    let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
    if turn == 2 {
        return bill.answer(request, manner, vec![json!({"content": "all done, and well "})], "stop");
    }
    let function = json!({"name": "read", "arguments": "{\"path\": \"notes.txt\"}"});
    let call = json!({"index": 0, "id": format!("c{turn}"), "type": "function", "function": function});
    bill.answer(request, manner, vec![json!({"tool_calls": [call]})], "tool_calls")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_runs_at_once_pass_no_cap_whatever_their_server_does() {
    const CAP: u64 = 1_000_000_000;
    let bill = Bill::default();
    let most = Arc::new(AtomicU64::new(0));
    let (account, peak) = (bill.clone(), most.clone());
    let failed = Mutex::new(BTreeSet::new());
    let server = Server::start(move |request| {
        // No request fails twice, so no run is given up for that.
        let may_fail = || failed.lock().unwrap().insert(request["messages"].to_string());
        let manner = match account.next() % 20 {
            3 if may_fail() => Manner::BreaksOff,
            7 | 11 => Manner::Untold,
            13 if may_fail() => Manner::Refused,
            _ => Manner::Told,
        };
        let answer = three_turns(&account, request, manner);
        peak.fetch_max(account.charged(), Ordering::SeqCst);
        answer
    })
    .await;
    let stage = stage(&server).await;
    stage.write("ws", "notes.txt", &"a note\n".repeat(40));
    stage.supervisor.set_cap(batch(), Some(NanoUsd::new(CAP)));
    let runs: Vec<_> = (0..200)
        .map(|n| {
            let mut task = task(2_000);
            task["task"] = format!("task {n}").into();
            stage.submit("ws", &Value::Null, &task)
        })
        .collect();
    let (mut outcomes, mut recorded) = (BTreeMap::<String, u32>::new(), 0);
    for Submitted { run, done } in runs {
        let outcome = match done.await.unwrap().end {
            Ok(end) => {
                recorded += end.usage.cost.unwrap_or_default().get();
                end.outcome.to_string()
            }
            Err(Unended::Unaffordable) => {
                // One that was turned away has cost nothing.
                let refused = ["request_sent", "model_retry"];
                let kinds = stage.kinds(run).await.into_iter().filter(|kind| !refused.contains(kind));
                assert_eq!(kinds.collect::<Vec<_>>(), ["submitted", "run_start", "turn_start", "parked"]);
                "not started".to_owned()
            }
            Err(other) => panic!("{other}"),
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    let Standing { spent, reserved, .. } = standing(&stage, &batch()).await;
    assert!(most.load(Ordering::SeqCst) <= CAP && bill.charged() <= spent.get());
    assert_eq!((reserved, spent.get()), (NanoUsd::default(), recorded));
    let known = ["budget: cost", "done", "not started"];
    assert!(outcomes.keys().all(|outcome| known.contains(&outcome.as_str())), "{outcomes:?}");
    // The money is not enough for all. Who gets it is open, but nobody goes without as long as there is enough of it.
    assert!(outcomes.get("done").is_none_or(|done| *done < 200), "{outcomes:?}");
    assert!(spent.get() > CAP * 9 / 10, "{spent:?}");
    assert_eq!(server.refusals(), Vec::<String>::new());
}

#[tokio::test]
async fn a_run_that_did_not_begin_for_want_of_money_goes_on_as_the_same_run_when_there_is_more() {
    let bill = Bill::default();
    let account = bill.clone();
    let server = Server::start(move |request| three_turns(&account, request, Manner::Told)).await;
    let stage = stage(&server).await;
    stage.write("ws", "notes.txt", "noted\n");
    stage.supervisor.set_cap(batch(), Some(NanoUsd::new(1_000)));
    let Submitted { run, done } = stage.submit("ws", &Value::Null, &task(2_000));
    assert!(matches!(done.await.unwrap().end, Err(Unended::Unaffordable)));
    assert_eq!(server.requests().len(), 0);
    stage.supervisor.set_cap(batch(), Some(NanoUsd::from_usd(1.0)));
    let submitted = stage.supervisor.resume(run).await.unwrap();
    let end = stage.end(submitted).await;
    assert_eq!((end.outcome.to_string(), end.turns), ("done".to_owned(), 3));
    assert_eq!(end.usage.cost, Some(NanoUsd::new(bill.charged())));
}

#[tokio::test]
async fn a_run_in_the_middle_of_its_work_ends_when_its_next_request_does_not_fit() {
    let bill = Bill::default();
    let account = bill.clone();
    let server = Server::start(move |request| three_turns(&account, request, Manner::Told)).await;
    let stage = stage(&server).await;
    stage.write("ws", "notes.txt", "noted\n");
    // The first costs an eighth of its 8,000 tokens, and leaves too little for the least that a second may cost.
    stage.supervisor.set_cap(batch(), Some(NanoUsd::new(8_000 * OUTPUT + 1_000 * INPUT)));
    stage.supervisor.spent(batch(), NanoUsd::new(0));
    let first = stage.submit("ws", &Value::Null, &task(8_000));
    let end = stage.end(first).await;
    assert_eq!(end.outcome.to_string(), "done", "an answer is shortened if it is the only one");
    assert!(
        server.requests()[2]["max_completion_tokens"]
            .as_u64()
            .or(server.requests()[2]["max_tokens"].as_u64())
            < Some(8_000)
    );
    let limits = json!({"limits": {"max_cost_usd": 0.03}});
    let mut own = task(2_000);
    own.as_object_mut().unwrap().remove("batch");
    own["limits"] = limits["limits"].clone();
    let end = stage.end(stage.submit("ws", &Value::Null, &own)).await;
    assert_eq!(end.outcome.to_string(), "done");
    own["limits"]["max_cost_usd"] = json!(0.014);
    let end = stage.end(stage.submit("ws", &Value::Null, &own)).await;
    assert_eq!(end.outcome.to_string(), "budget: cost");
    assert!(end.turns > 1 && end.usage.cost.unwrap() < NanoUsd::from_usd(0.014), "{end:?}");
}

#[tokio::test]
async fn a_request_that_is_given_up_is_of_record_at_the_most_it_can_have_cost() {
    let server = Server::start(|_| Answer::Raw(vec![Step::Hang])).await;
    let stage = stage(&server).await;
    let cancelled = stage.submit("ws", &Value::Null, &task(2_000));
    server.asked(1).await;
    let run = cancelled.run;
    stage.supervisor.cancel(run).await.unwrap();
    let end = stage.end(cancelled).await;
    let lost = stage.log(run).await.into_iter().find_map(|one| {
        let Event::RequestLost(lost) = one.fact.event else { return None };
        Some(lost.usage)
    });
    let lost = lost.expect("it is of record");
    assert_eq!((lost.output, lost.estimated, end.usage), (2_000, true, lost));
    let limit = tokio::time::timeout(PATIENCE, async {
        while standing(&stage, &batch()).await.spent != lost.cost.unwrap() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    limit.await.expect("the account has it too");
    let interrupted = stage.submit("ws", &Value::Null, &task(2_000));
    server.asked(2).await;
    let run = interrupted.run;
    stage.supervisor.drain(Duration::ZERO).await;
    assert_eq!(stage.kinds(run).await[3..], ["request_sent", "request_lost", "interrupted"]);
}

#[tokio::test]
async fn what_a_server_does_not_count_is_taken_to_be_all_that_was_reserved() {
    let bill = Bill::default();
    let account = bill.clone();
    let server = Server::start(move |request| three_turns(&account, request, Manner::Untold)).await;
    let stage = stage(&server).await;
    stage.write("ws", "notes.txt", "noted\n");
    let end = stage.end(stage.submit("ws", &Value::Null, &task(2_000))).await;
    assert_eq!(
        (end.outcome.to_string(), end.usage.output, end.usage.estimated),
        ("done".to_owned(), 6_000, true)
    );
    assert!(end.usage.cost.unwrap().get() >= 6_000 * OUTPUT);
}

#[tokio::test]
async fn a_request_that_failed_counts_against_a_limit_of_tokens_though_nobody_pays_for_it() {
    let bill = Bill::default();
    let account = bill.clone();
    let server = Server::start(move |request| {
        let manner = if account.next() == 0 { Manner::BreaksOff } else { Manner::Told };
        three_turns(&account, request, manner)
    })
    .await;
    let stage = priced(&server, None).await;
    stage.write("ws", "notes.txt", "noted\n");
    let mut task = task(2_000);
    task["limits"] = json!({"max_total_tokens": 1_000_000});
    let submitted = stage.submit("ws", &Value::Null, &task);
    let run = submitted.run;
    let end = stage.end(submitted).await;
    let failed = stage.log(run).await.into_iter().find_map(|one| {
        let Event::ModelRetry(retry) = one.fact.event else { return None };
        retry.usage
    });
    assert_eq!((end.outcome.to_string(), failed.map(|usage| usage.output)), ("done".to_owned(), Some(2_000)));
    assert!(end.usage.output > 2_000, "{:?}", end.usage);
    assert_eq!(stage.kinds(run).await[2..5], ["turn_start", "request_sent", "model_retry"]);
}

#[tokio::test]
async fn a_request_that_failed_is_settled_at_what_its_server_said_that_it_used_up() {
    let failed = json!({"choices": [{"index": 0, "delta": {"content": "hm"}}], "usage": {"prompt_tokens": 70, "completion_tokens": 9}});
    let stream =
        format!("data: {failed}\n\ndata: {}\n\n", json!({"error": {"message": "gone", "code": 500}}));
    let bill = Bill::default();
    let account = bill.clone();
    let server = Server::start(move |request| match account.next() {
        0 => Answer::Raw(vec![Step::Bytes(stream.clone().into_bytes())]),
        _ => account.answer(request, Manner::Told, vec![json!({"content": "done"})], "stop"),
    })
    .await;
    let stage = stage(&server).await;
    let end = stage.end(stage.submit("ws", &Value::Null, &task(2_000))).await;
    let failed = NanoUsd::new(70 * INPUT + 9 * OUTPUT);
    assert_eq!(end.usage.cost, Some(NanoUsd::new(failed.get() + bill.charged())));
    assert_eq!(standing(&stage, &batch()).await.spent, end.usage.cost.unwrap());
}

#[tokio::test]
async fn a_larger_limit_of_cost_is_heard_by_a_run_that_is_live() {
    let bill = Bill::default();
    let account = bill.clone();
    let server = Server::start(move |request| three_turns(&account, request, Manner::Told)).await;
    let stage = stage(&server).await;
    stage.write("ws", "notes.txt", "noted\n");
    let mut task = task(2_000);
    task["limits"] = json!({"max_cost_usd": 0.0});
    let spent_out = stage.submit("ws", &Value::Null, &task);
    assert_eq!(stage.outcome(spent_out).await, "budget: cost");
    stage.supervisor.set_cap(batch(), Some(NanoUsd::new(0)));
    let waits = stage.submit("ws", &Value::Null, &json!({"batch": BATCH, "script": null}));
    let run = waits.run;
    assert!(matches!(waits.done.await.unwrap().end, Err(Unended::Unaffordable)));
    stage.supervisor.set_cap(batch(), None);
    let limits = Limits { max_cost_usd: Some(NanoUsd::from_usd(5.0)), ..Limits::default() };
    let resumed = stage.supervisor.resume(run).await.unwrap();
    // It may have ended by then.
    let _ = stage.supervisor.ask(run, Input::SetLimits(limits)).await;
    assert_eq!(stage.outcome(resumed).await, "done");
}
