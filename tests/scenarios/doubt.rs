//! A batch that was killed while one run changed a file that another one waited for.

use std::fs;

use herder::{
    domain::{
        call::{Access, Arguments, EffectClass, Mode, Scope},
        event::FileChange,
        id::{CallId, Seq},
        outcome::Stop,
        policy::Verdict,
        run::{Input, Judgement, Proposal, ProposedCall, Run},
        time::Timestamp,
    },
    store::{
        EventStore as _, RunFilter, RunRecord,
        folder::StateFolder,
        sqlite::{Options, SqliteStore},
    },
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{Place, assert_sound, call, is_state, task, until};

const STATE: &str = "out.jsonl.state";

fn edit(old: &str, new: &str) -> Value {
    json!({ "path": "a.txt", "old_text": old, "new_text": new })
}

/// A model's answer that asks for this edit of the file at `path`, allowed.
fn asks_for(edit: &Value, path: &str) -> Input {
    let access = vec![Access { scope: Scope::File, path: path.into(), mode: Mode::Exclusive }];
    let (verdict, rule, effect) = (Verdict::Allow, "a rule".to_owned(), EffectClass::Write);
    let call = ProposedCall {
        id: Some("c".into()),
        name: "edit".into(),
        arguments: Arguments::parse(&edit.to_string()).unwrap(),
        judgement: Judgement::Judged { verdict, rule, effect, access, ask: None },
    };
    let proposal = Proposal { calls: vec![call], ..Proposal::new(Stop::ToolCalls) };
    Input::Replied { turn: 1, attempt: 1, proposal: Box::new(proposal) }
}

async fn tell(store: &SqliteStore, record: &RunRecord, inputs: Vec<Input>) {
    for input in inputs {
        let log = store.read(record.run, Seq::START).await.unwrap();
        let run = Run::replay(record.run, log.iter().map(|one| &one.fact));
        let facts = run.decide(input, Timestamp::default()).unwrap();
        store.durable(store.append(record.run, run.seq(), &facts).unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn an_edit_that_was_made_before_a_kill_is_known_before_the_next_one_changes_the_file() {
    let place = Place::new();
    let edits = [("waits", edit("two", "TWO")), ("makes", edit("one", "ONE"))];
    let slow = |arguments: &Value| {
        let mut reply = call("edit", arguments.clone());
        reply["delay_ms"] = json!(600_000);
        json!([reply, { "text": "ready" }])
    };
    place.tasks("in.jsonl", &edits.each_ref().map(|(id, arguments)| task(id, slow(arguments))));
    place.write("work/a.txt", "one\ntwo\n");
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "--policy", "trusted", "-j"];
    let batch = place.start(&[&args[..], &["2"]].concat());
    until("a log", || is_state(&place.path(STATE)));
    until("both runs ask their models", || {
        let seen = place.herder(&["events", "--all", "--json", "--state", STATE]);
        seen.out.matches("\"turn_start\"").count() == 2
    });
    batch.kill();

    // As if the models had answered and the second run had got as far as to change the file.
    let path = fs::canonicalize(place.path("work/a.txt")).unwrap().to_str().unwrap().to_owned();
    let hash = |text: &str| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (before, after) = ("one\ntwo\n", "ONE\ntwo\n");
    let change = FileChange { path: path.as_str().into(), before: Some(hash(before)), after: hash(after) };
    let folder = StateFolder::open_for_writing(&place.path(STATE)).unwrap();
    let store = SqliteStore::open(&folder.log(), Options::default()).unwrap();
    for record in store.runs(RunFilter::default()).await.unwrap() {
        let (id, arguments) = edits.iter().find(|(id, _)| record.task_id.as_deref() == Some(*id)).unwrap();
        let made =
            (*id == "makes").then(|| Input::Granted { call: CallId::new("c"), change: Some(change.clone()) });
        tell(&store, &record, [asks_for(arguments, &path)].into_iter().chain(made).collect()).await;
    }
    store.close();
    drop((store, folder));
    place.write("work/a.txt", after);

    place.herder(&[&args[..], &["1"]].concat()).expect(0);
    assert_eq!(place.read("work/a.txt"), "ONE\nTWO\n");
    let events = place.events(STATE);
    assert_sound(&events);
    let results: Vec<&Value> = events.iter().filter(|event| event["kind"] == "result").collect();
    assert!(results.iter().all(|result| result["data"]["ok"] == true), "{results:?}");
    assert!(results[0]["data"]["output"].as_str().unwrap().contains("made before"), "{results:?}");
}
