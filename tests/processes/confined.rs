//! Commands that the kernel keeps within bounds. Where it cannot, there is nothing to see here.

use std::process::Command;

use herder::tool::process::{
    CommandSpec, End, SpawnError,
    confine::{Confinement, Files, Network, support},
};

use tokio_util::sync::CancellationToken;

use crate::harness::Scene;

fn within(scene: &Scene, script: &str) -> Option<CommandSpec> {
    let confinement = Confinement { write: Some(vec![scene.path().to_owned()]), network: Network::Deny };
    let support = support();
    (support.files != Files::Absent && support.network)
        .then(|| CommandSpec { confinement, ..scene.bash(script) })
}

#[tokio::test]
async fn a_command_that_cannot_be_kept_within_its_bounds_is_not_run() {
    let scene = Scene::new();
    let Some(mut spec) = within(&scene, "touch made") else { return };
    spec.confinement.write = Some(vec![scene.path().to_owned(), scene.path().join("x".repeat(300))]);
    let refused = scene.try_run(spec).await.unwrap_err();
    assert!(matches!(&refused, SpawnError::Confine(_)), "{refused:?}");
    assert_eq!(refused.to_string(), "the command could not be confined, so it was not run");
    assert!(!scene.path().join("made").exists());
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn killing_the_guard_kills_a_confined_command() {
    let scene = Scene::new();
    let script = "trap '' TERM; sleep 60 & echo words; echo $PPID > guard; wait";
    let Some(spec) = within(&scene, script) else { return };
    let meanwhile = async {
        let guard = scene.until_file("guard").await;
        assert!(Command::new("kill").args(["-KILL", guard.trim()]).status().unwrap().success());
    };
    let done = scene.run_while(spec, &CancellationToken::new(), meanwhile).await;
    assert_eq!((done.end, done.output.text.as_str()), (End::GuardLost, "words\n"));
    scene.assert_nothing_runs();
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_as_such_within_bounds_too() {
    let scene = Scene::new();
    let Some(spec) = within(&scene, "") else { return };
    let missing = scene.try_run(CommandSpec { program: "no-such-program".into(), ..spec }).await;
    assert!(matches!(missing, Err(SpawnError::Missing { .. })), "{missing:?}");
}
