//! Tools that a configuration defines.

use std::{sync::Arc, time::Duration};

use herder::{
    domain::call::{Access, EffectClass, Failure, Mode, Scope},
    tool::{
        Output, Tool,
        command::{CommandError, CommandOptions, CommandTool, Reach},
    },
};
use serde_json::json;

use crate::harness::{RUN, Scene};

fn options(script: &str) -> CommandOptions {
    CommandOptions {
        name: "lookup".into(),
        description: "Looks something up.".into(),
        schema: Arc::new(json!({"type": "object"})),
        argv: ["sh", "-c", script].map(Into::into).to_vec(),
        reach: Reach::Anything,
        network: None,
        timeout: None,
    }
}

fn tool(scene: &Scene, options: CommandOptions) -> Arc<dyn Tool> {
    Arc::new(CommandTool::new(options, Arc::new(scene.launcher.clone())).unwrap())
}

#[tokio::test]
async fn it_gets_its_arguments_on_stdin_and_answers_with_what_it_prints() {
    let scene = Scene::new();
    let tool = tool(&scene, options("cat; pwd; echo $HERDER_RUN_ID $HERDER_CALL_ID"));
    let output = scene.run(tool, json!({"b": 1, "a": "é"})).await;
    let text = format!("{{\"a\":\"é\",\"b\":1}}{}\n{RUN} call_1\n", scene.workspace.key());
    assert_eq!(output, Output::ok(text));
}

#[tokio::test]
async fn an_exit_code_other_than_0_is_a_failure() {
    let scene = Scene::new();
    let output = scene.run(tool(&scene, options("echo no such thing; exit 2")), json!({})).await;
    assert_eq!(output, Output::failed(Failure::Failed, "no such thing\n[exit code 2]"));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let scene = Scene::new();
    let missing = CommandOptions { argv: vec!["no-such-program".into()], ..options("") };
    let output = scene.run(tool(&scene, missing), json!({})).await;
    assert_eq!(output, Output::failed(Failure::Failed, "no such program: no-such-program"));
}

#[tokio::test]
async fn its_own_time_limit_counts() {
    let scene = Scene::new();
    let hasty = CommandOptions { timeout: Some(Duration::from_millis(500)), ..options("sleep 60") };
    let output = scene.run(tool(&scene, hasty), json!({})).await;
    assert_eq!(output, Output::failed(Failure::TimedOut, "[timed out after 0.5 s]"));
}

#[tokio::test]
async fn the_idempotency_key_is_the_calls_and_the_arguments() {
    let mut scene = Scene::new();
    let print = || options("echo $HERDER_IDEMPOTENCY_KEY");
    let first = scene.run(tool(&scene, print()), json!({"a": 1, "b": 2})).await.text;
    assert_eq!(first.len(), 65, "{first}");
    let again: serde_json::Value = serde_json::from_str(r#"{ "b": 2, "a": 1 }"#).unwrap();
    assert_eq!(scene.run(tool(&scene, print()), again).await.text, first);
    assert_ne!(scene.run(tool(&scene, print()), json!({"a": 1, "b": 3})).await.text, first);
    let renamed = CommandOptions { name: "other".into(), ..print() };
    assert_ne!(scene.run(tool(&scene, renamed), json!({"a": 1, "b": 2})).await.text, first);
    scene.call = "call_2";
    assert_ne!(scene.run(tool(&scene, print()), json!({"a": 1, "b": 2})).await.text, first);
}

#[test]
fn one_that_only_reads_shares_the_workspace_and_may_run_again() {
    let scene = Scene::new();
    for (reach, effect, mode) in [
        (Reach::ReadOnly, EffectClass::Read, Mode::Shared),
        (Reach::Anything, EffectClass::Outside, Mode::Exclusive),
    ] {
        let tool = tool(&scene, CommandOptions { reach, ..options("") });
        let access = Access { scope: Scope::Tree, path: scene.workspace.key().clone(), mode };
        assert_eq!(tool.access(&scene.workspace, &json!({})), Ok(vec![access]));
        assert_eq!(tool.effect(), effect);
    }
}

#[test]
fn without_a_program_there_is_no_tool() {
    let scene = Scene::new();
    for argv in [vec![], vec!["".into()]] {
        let made = CommandTool::new(CommandOptions { argv, ..options("") }, Arc::new(scene.launcher.clone()));
        assert!(matches!(made, Err(CommandError::NoProgram(name)) if &*name == "lookup"));
    }
}
