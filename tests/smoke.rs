//! smoke
use herder::{
    actor::*,
    clock::SystemClock,
    domain::{id::RunId, script::*, task::*},
    model::{Model, Models, scripted::Scripted},
    store::memory::MemoryStore,
    tool::{toolbox::Toolbox, workspace::Workspaces},
};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn smoke() {
    let mut models = Models::default();
    models.insert(Model {
        name: "scripted".into(),
        wire_name: "scripted".into(),
        provider: Arc::new(Scripted::default()),
        context_tokens: None,
        max_output_tokens: None,
    });
    let services = Arc::new(Services {
        store: Arc::new(MemoryStore::default()),
        clock: Arc::new(SystemClock),
        models,
        toolbox: Toolbox::default(),
        policy: herder::config::policies::load("trusted").unwrap(),
        workspaces: Workspaces::default(),
        live: tokio::sync::broadcast::channel(64).0,
        settings: Settings { max_live_runs: 100, ..Settings::default() },
    });
    let sup = Supervisor::start(services).await.unwrap();
    let start = std::time::Instant::now();
    let mut waits = vec![];
    let script: Script = serde_json::from_str(
        r#"[{"text":"a","calls":[{"name":"nope"}]},{"text":"a","calls":[{"name":"nope"}]},{"text":"b"}]"#,
    )
    .unwrap();
    for _ in 0..1000 {
        let spec = TaskSpec {
            task: "x".into(),
            task_id: None,
            batch: None,
            attempt: 1,
            predecessor: None,
            system: None,
            facts: Default::default(),
            model: "scripted".into(),
            workspace: "/tmp".into(),
            tools: None,
            limits: Default::default(),
            priority: 0,
            labels: Default::default(),
            meta: None,
            params: Default::default(),
            script: Some(script.clone()),
        };
        waits.push(sup.submit(RunId::new(uuid::Uuid::now_v7()), Arc::new(spec)).await.unwrap().done);
    }
    let mut last = None;
    for w in waits {
        last = Some(w.await.unwrap());
    }
    println!("{:?} {:?}", start.elapsed(), last);
}
