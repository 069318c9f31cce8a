//! What a call names can become something else while it waits: then policy speaks again.

use herder::domain::{
    call::{EffectClass, Failure, Mode},
    policy::Policy,
};
use serde_json::json;

use crate::{
    doubles::Double,
    stage::{Plan, calls, says},
};

fn policy() -> Policy {
    let rules = json!([
        { "path": [".env"], "decision": "deny", "reason": "secrets stay where they are" },
        { "path": ["drafts/**"], "decision": "ask" },
        { "path": ["**"], "decision": "allow" },
    ]);
    serde_json::from_value(json!({ "name": "test", "rule": rules })).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_file_has_moved_runs_only_where_policy_lets_it() {
    let secrets = "denied: rule 1 of policy test: secrets stay where they are";
    let drafts = "denied: rule 2 of policy test says ask, and nobody is there to ask";
    for (file, failure, output) in [
        (".env", Some(Failure::Denied), secrets),
        ("drafts/a.txt", Some(Failure::Denied), drafts),
        ("notes.txt", None, "did it"),
    ] {
        let tool = Double::quick("look").effect(EffectClass::Read).on("ok.txt", Mode::Shared).moved_to(file);
        let stage = Plan { policy: policy(), ..Plan::paused() }.tool(tool).start().await;
        let submitted = stage.run(&json!([calls(&[("a", "look", json!({}))]), says("done")]));
        let run = submitted.run;
        assert_eq!(stage.outcome(submitted).await, "done");
        let results = stage.results(run).await;
        assert_eq!((results.len(), results[0].failure, &*results[0].output), (1, failure, output));
        let started = stage.kinds(run).await.contains(&"call_started");
        assert_eq!(started, failure.is_none(), "{file}");
    }
}
