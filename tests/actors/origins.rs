//! What the harnesses that herder comes from promise, where it takes a whole tree to keep it.

use std::sync::{Arc, Mutex};

use futures_util::{StreamExt as _, stream::BoxStream};
use herder::{
    actor::{LiveDelta, supervisor::SubmitError},
    domain::{
        call::{EffectClass, Failure, Mode, ToolSpec},
        id::RunId,
        message::Message,
    },
    model::{Delta, ModelError, ModelProvider, Request, scripted::Scripted},
    store::StoreError,
    tool::{
        CallContext, Output, Started, Tool,
        toolbox::{RegisterError, Toolbox},
        workspace::Workspace,
    },
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    doubles::{Double, Gate},
    stage::{Plan, Stage, calls, replay, says},
};

/// A scripted model that keeps what it was asked.
#[derive(Default)]
struct Listening(Mutex<Vec<Request>>);

impl ModelProvider for Listening {
    fn stream(
        &self,
        request: Request,
        cancel: CancellationToken,
    ) -> BoxStream<'static, Result<Delta, ModelError>> {
        self.0.lock().unwrap().push(request.clone());
        Scripted::default().stream(request, cancel).boxed()
    }
}

fn look(id: &str) -> Value {
    calls(&[(id, "look", json!({}))])
}

#[tokio::test(start_paused = true)]
async fn deleting_every_listener_changes_nothing() {
    let script = json!([{ "text": "let me see", "chunks": 4, "calls": [{ "id": "a", "name": "look" }] }, says("done")]);
    let stage = Plan::paused().tool(Double::quick("look")).start().await;
    let mut watched = stage.supervisor.services().live.subscribe();
    let follower = stage.store.watch();
    let first = stage.run(&script);
    let with = first.run;
    assert_eq!(stage.outcome(first).await, "done");
    let mut heard = String::new();
    while let Ok(live) = watched.try_recv() {
        if let LiveDelta::Text(text) = live.what {
            heard.push_str(&text);
        }
    }
    assert_eq!(heard, "let me seedone", "what is live is what the message says in the end");

    drop((watched, follower));
    let second = stage.run(&script);
    let without = second.run;
    assert_eq!(stage.outcome(second).await, "done");
    assert_eq!(stage.kinds(with).await, stage.kinds(without).await);
    assert_eq!(stage.transcript(with).await, stage.transcript(without).await);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_offered_no_tools_has_every_call_refused_and_still_ends() {
    let provider = Arc::new(Listening::default());
    let stage = Plan { provider: provider.clone(), ..Plan::paused() }.start().await;
    let script =
        json!([calls(&[("a", "read", json!({ "path": "x" })), ("b", "look", json!({}))]), says("done")]);
    let submitted = stage.submit("ws", &script, &json!({ "tools": [] }));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    let results = stage.results(run).await;
    let told: Vec<_> = results.iter().map(|one| (&*one.output, one.failure)).collect();
    let unknown = Some(Failure::UnknownTool);
    assert_eq!(
        told,
        [("no tool named read is registered", unknown), ("no tool named look is registered", unknown)]
    );
    assert!(provider.0.lock().unwrap().iter().all(|request| request.tools.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_limited_is_bounded_all_the_same() {
    let script: Vec<_> = (0..60).map(|n| look(&format!("c{n}"))).collect();
    let stage = Plan::paused().tool(Double::quick("look")).start().await;
    let end = stage.end(stage.run(&Value::Array(script))).await;
    assert_eq!((end.outcome.to_string().as_str(), end.turns), ("budget: turns", 50));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_provider_is_never_done() {
    let broken = json!({ "text": "almost", "stop": "error" });
    let refused = json!({ "fault": { "status": 400 } });
    for script in
        [json!([broken, broken, broken, broken, broken]), json!([refused]), json!([look("a"), refused])]
    {
        let stage = Plan::paused().tool(Double::quick("look")).start().await;
        let outcome = stage.outcome(stage.run(&script)).await;
        assert!(outcome.starts_with("provider_error: "), "{outcome}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_run_also_when_the_model_says_that_it_is_done() {
    let mut reply = look("a");
    reply["stop"] = json!("end_turn");
    let stage = Plan::paused().tool(Double::quick("look")).start().await;
    let submitted = stage.run(&json!([reply, says("done")]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!(stage.transcript(run).await, ["user: task", "model: a", "tool a: did it", "model: done"]);
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_run_has_this_order() {
    let stage = Plan::paused().tool(Double::quick("look").on("file", Mode::Exclusive)).start().await;
    let both = calls(&[("a", "look", json!({})), ("b", "look", json!({}))]);
    let submitted = stage.run(&json!([both, { "fault": { "status": 500 } }, says("done")]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    let expected = [
        "submitted",
        "run_start",
        "turn_start",
        "message",
        "decision",
        "decision",
        "call_started",
        "result",
        "call_started",
        "result",
        "turn_end",
        "turn_start",
        "model_retry",
        "message",
        "turn_end",
        "run_end",
    ];
    assert_eq!(stage.kinds(run).await, expected);
}

#[tokio::test(start_paused = true)]
async fn what_a_model_is_asked_is_what_the_log_says() {
    let provider = Arc::new(Listening::default());
    let plan = Plan { provider: provider.clone(), ..Plan::paused() };
    let stage = plan.tool(Double::quick("look")).start().await;
    let submitted = stage.run(&json!([look("a"), look("b"), says("done")]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    let log = stage.log(run).await;
    let state = replay(run, &log);
    let asked = provider.0.lock().unwrap();
    for (request, length) in asked.iter().zip([1, 3, 5]) {
        let said = request.messages.iter().filter(|one| !matches!(one, Message::System(_))).cloned();
        assert_eq!(said.collect::<Vec<_>>(), state.history()[..length]);
    }
    let shown = asked[0].tools.iter().find(|one| &*one.name == "look").unwrap();
    assert_eq!((&*shown.description, &*shown.schema), ("for a test", &json!({ "type": "object" })));
}

#[tokio::test]
async fn a_call_that_cannot_be_made_is_answered_so_that_the_model_can_correct_it() {
    let stage = Plan::default().start().await;
    stage.write("ws", "a.txt", "hello\n");
    let wrong = calls(&[
        ("unknown", "fly", json!({})),
        ("garbled", "read", json!("{\"path\": ")),
        ("list", "read", json!([1])),
        ("schema", "read", json!({ "path": 7, "limit": "many" })),
        ("failing", "read", json!({ "path": "missing.txt" })),
        ("right", "read", json!({ "path": "a.txt" })),
    ]);
    let submitted = stage.run(&json!([wrong, says("done")]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    let results = stage.results(run).await;
    let of = |id: &str| results.iter().find(|one| one.call.as_str() == id).unwrap();
    assert_eq!(of("unknown").failure, Some(Failure::UnknownTool));
    assert!(of("unknown").output.contains("the tools are: bash, edit"), "{}", of("unknown").output);
    assert!(of("garbled").output.contains("not valid JSON"), "{}", of("garbled").output);
    assert!(of("list").output.contains("not an array"), "{}", of("list").output);
    for path in ["/path", "/limit"] {
        assert!(of("schema").output.contains(path), "{}", of("schema").output);
    }
    for id in ["garbled", "list", "schema"] {
        assert_eq!(of(id).failure, Some(Failure::InvalidArguments), "{id}");
    }
    assert_eq!((of("failing").failure, of("right").failure), (Some(Failure::Failed), None));
}

/// A tool that panics in one of its three methods.
struct Panicking(ToolSpec, &'static str);

impl Panicking {
    fn at(place: &'static str) -> Self {
        let schema = Arc::new(json!({ "type": "object" }));
        Self(ToolSpec { name: place.into(), description: "panics".into(), schema }, place)
    }
}

impl Tool for Panicking {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self) -> EffectClass {
        EffectClass::Outside
    }

    fn access(&self, _: &Workspace, _: &Value) -> Result<Vec<herder::domain::call::Access>, String> {
        assert_ne!(self.1, "access");
        Ok(Vec::new())
    }

    fn start(self: Arc<Self>, _: CallContext, _: Value) -> futures_util::future::BoxFuture<'static, Started> {
        assert_ne!(self.1, "start");
        let work = Box::pin(async move {
            assert_ne!(self.1, "work");
            Output::ok("did it")
        });
        Box::pin(std::future::ready(Started::Ready { change: None, work }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_has_failed_and_the_run_goes_on() {
    let plan =
        Plan::paused().tool(Panicking::at("access")).tool(Panicking::at("start")).tool(Panicking::at("work"));
    let stage = plan.start().await;
    let all = ["access", "start", "work"].map(|place| (place, place, json!({})));
    let submitted = stage.run(&json!([calls(&all), says("done")]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    let results = stage.results(run).await;
    assert_eq!(results.len(), 3);
    for result in results {
        assert_eq!(result.failure, Some(Failure::Failed));
        assert!(result.output.contains("panicked"), "{}", result.output);
    }
}

#[tokio::test]
async fn a_run_that_exists_is_not_submitted_again() {
    let stage = Plan::default().start().await;
    let (run, task) = (RunId::new(Uuid::now_v7()), stage.task("ws", &json!([says("done")]), &json!({})));
    let submitted = stage.supervisor.submit(run, task.clone()).await.unwrap();
    let again = stage.supervisor.submit(run, task).await;
    assert!(matches!(again, Err(SubmitError::Store(StoreError::Conflict { .. }))));
    assert_eq!(stage.outcome(submitted).await, "done");
}

#[test]
fn a_tool_is_registered_once_with_a_name_and_a_schema_that_a_model_can_be_shown() {
    let tool = |name: &str, schema: Value| {
        let mut tool = Panicking::at("none");
        tool.0.name = name.into();
        tool.0.schema = Arc::new(schema);
        Arc::new(tool)
    };
    let object = json!({ "type": "object" });
    let mut toolbox = Toolbox::default();
    toolbox.register(tool("look", object.clone())).unwrap();
    let refused = |toolbox: &mut Toolbox, name, schema| toolbox.register(tool(name, schema)).unwrap_err();
    assert!(matches!(refused(&mut toolbox, "look", object.clone()), RegisterError::Duplicate(_)));
    assert!(matches!(refused(&mut toolbox, "a b", object), RegisterError::Name(_)));
    assert!(matches!(refused(&mut toolbox, "c", json!({ "type": "string" })), RegisterError::NotAnObject));
    let broken = json!({ "type": "object", "properties": { "a": { "type": "nonsense" } } });
    assert!(matches!(refused(&mut toolbox, "d", broken), RegisterError::Schema { .. }));
    assert_eq!(toolbox.names().map(|name| &**name).collect::<Vec<_>>(), ["look"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_judged_keeps_its_judgement_when_the_policy_changes() {
    let gate = Gate::closed();
    let tools = |plan: Plan| {
        plan.tool(Double::gated("hold", &gate).on("file", Mode::Exclusive))
            .tool(Double::quick("look").on("file", Mode::Exclusive))
    };
    let first: Stage = tools(Plan::paused()).start().await;
    let holds = first.run(&json!([calls(&[("a", "hold", json!({}))])]));
    gate.until_inside(1).await;
    let waits = first.run(&json!([look("a"), look("b"), says("done")]));
    let run = waits.run;
    first.until(run, "decision", 1).await;
    first.supervisor.drain(std::time::Duration::ZERO).await;
    drop(holds);

    let policy = serde_json::from_value(json!({ "name": "strict", "rule": [
        { "tools": ["look"], "path": ["file"], "decision": "deny", "reason": "not any more" },
        { "decision": "allow" },
    ]}));
    let plan = Plan { policy: policy.unwrap(), store: first.store.clone(), ..Plan::paused() };
    let second = tools(plan).start_in(first.folder.clone()).await;
    let resumed = second.supervisor.resume(run).await.unwrap();
    assert_eq!(second.outcome(resumed).await, "done");
    let failures: Vec<_> = second.results(run).await.iter().map(|one| one.failure).collect();
    assert_eq!(failures, [None, Some(Failure::Denied)]);
}
