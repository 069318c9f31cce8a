//! What runs change at the same time: no change is lost, no two overlap, each waits its turn and nobody else's.

use std::{fs, sync::Arc};

use herder::domain::{
    call::{Failure, Mode, Timing},
    event::Event,
    id::RunId,
};
use serde_json::{Value, json};

use crate::{
    doubles::{Double, Gate, TroubledStore},
    stage::{Plan, Stage, calls, says},
};

fn edit(old: &str, new: &str) -> Value {
    json!({ "path": "notes.txt", "old_text": old, "new_text": new })
}

async fn timings(stage: &Stage, run: RunId) -> Vec<Timing> {
    let log = stage.log(run).await.into_iter();
    log.filter_map(|one| {
        let Event::Result(result) = one.fact.event else { return None };
        assert!(result.ok, "{}", result.output);
        result.timing
    })
    .collect()
}

/// Microseconds: when it was queued, when it was granted, when its work had ended.
fn times(timing: &Timing) -> (i64, i64, i64) {
    let granted = timing.granted_at.as_micros();
    let after = |micros: u64| i64::try_from(micros).unwrap();
    (granted - after(timing.waited_us), granted, granted + after(timing.held_us))
}

/// Each of these calls conflicts with each.
fn assert_one_after_the_other(mut timings: Vec<Timing>) {
    timings.sort_by_key(|timing| timing.granted_at);
    for (earlier, later) in timings.iter().map(times).zip(timings.iter().skip(1).map(times)) {
        assert!(earlier.2 <= later.1, "overlap: {earlier:?} {later:?}");
        assert!(earlier.0 <= later.0, "out of order: {earlier:?} {later:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_and_commands_of_400_runs_on_one_workspace_lose_no_line_and_keep_nobody_else_waiting() {
    let gate = Gate::closed();
    let holds = Double::gated("hold", &gate).on("notes.txt", Mode::Exclusive);
    let stage = Plan::default().tool(holds).settings(|settings| settings.max_live_runs = 500).start().await;
    stage.write("shared", "notes.txt", "# here\n");
    let first =
        stage.submit("shared", &json!([calls(&[("c", "hold", json!({}))]), says("done")]), &json!({}));
    gate.until_inside(1).await;
    let mut shared = Vec::new();
    for n in 0..200 {
        let edit = edit("# here\n", &format!("# here\nedit {n}\n"));
        let command = format!("text=$(<notes.txt); printf '%s\\ncommand {n}\\n' \"$text\" > notes.txt");
        for call in [("c", "edit", edit), ("c", "bash", json!({ "command": command }))] {
            shared.push(stage.submit("shared", &json!([calls(&[call]), says("done")]), &json!({})));
        }
    }
    let mut others = Vec::new();
    for n in 0..10 {
        let workspace = format!("other{n}");
        stage.write(&workspace, "notes.txt", "one\n");
        let command = json!({ "command": "echo three >> notes.txt" });
        let script = json!([
            calls(&[("a", "edit", edit("one", "two"))]),
            calls(&[("b", "bash", command)]),
            says("done")
        ]);
        others.push((stage.submit(&workspace, &script, &json!({})), workspace));
    }

    for (submitted, workspace) in others {
        assert_eq!(
            stage.outcome(submitted).await,
            "done",
            "the others are not behind what waits for the first"
        );
        assert_eq!(stage.text(&workspace, "notes.txt"), "two\nthree\n");
    }
    assert_eq!(stage.text("shared", "notes.txt"), "# here\n");
    gate.open.add_permits(1);
    assert_eq!(stage.outcome(first).await, "done");
    let mut results = Vec::new();
    for submitted in shared {
        let run = submitted.run;
        assert_eq!(stage.outcome(submitted).await, "done");
        results.extend(timings(&stage, run).await);
    }

    let text = stage.text("shared", "notes.txt");
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let mut expected: Vec<_> = (0..200)
        .flat_map(|n| [format!("edit {n}"), format!("command {n}")])
        .chain(["# here".to_owned()])
        .collect();
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected);
    assert_eq!(results.len(), 400);
    assert_one_after_the_other(results);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_edits_of_one_file_in_one_message_are_both_made_in_the_order_of_the_calls() {
    let stage = Plan::default().settings(|settings| settings.max_live_runs = 200).start().await;
    let rows: String = (1..=80).map(|row| format!("row {row:02}\n")).collect();
    let edit = |old: &str, new: &str| json!({ "path": "rows.txt", "oldText": old, "newText": new });
    let script = json!([
        calls(&[
            ("a", "edit", edit("row 20", "ROW TWENTY")),
            ("b", "edit", edit("row 61", "ROW SIXTY-ONE")),
            ("c", "write", json!({ "path": "other.txt", "content": "x" })),
        ]),
        says("done"),
    ]);
    let rounds: Vec<_> = (0..200)
        .map(|round| {
            let workspace = format!("round{round}");
            stage.write(&workspace, "rows.txt", &rows);
            (stage.submit(&workspace, &script, &json!({})), workspace)
        })
        .collect();
    let expected = rows.replace("row 20", "ROW TWENTY").replace("row 61", "ROW SIXTY-ONE");
    for (submitted, workspace) in rounds {
        let run = submitted.run;
        assert_eq!(stage.outcome(submitted).await, "done");
        assert_eq!(stage.text(&workspace, "rows.txt"), expected);
        assert_eq!(stage.text(&workspace, "other.txt"), "x");
        let results = stage.results(run).await;
        let of = |id: &str| results.iter().find(|one| one.call.as_str() == id).unwrap().timing.unwrap();
        assert!(times(&of("a")).2 <= times(&of("b")).1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_waits_for_the_command_that_was_asked_for_before_it() {
    let stage = Plan::default().start().await;
    stage.write("ws", "notes.txt", "one two\n");
    let command = "sleep 0.2; text=$(<notes.txt); printf '%s\\n' \"${text/one/ONE}\" > notes.txt";
    let script = json!([
        calls(&[("a", "bash", json!({ "command": command })), ("b", "edit", edit("two", "TWO"))]),
        says("done"),
    ]);
    let submitted = stage.run(&script);
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!(stage.text("ws", "notes.txt"), "ONE TWO\n");
    assert_one_after_the_other(timings(&stage, run).await);
}

#[tokio::test]
async fn a_change_from_outside_between_the_read_and_the_write_of_an_edit_is_not_overwritten() {
    // An edit is announced in the log after it has read the file, and before it writes.
    let store = TroubledStore::new(|_, _, facts| {
        for fact in facts {
            if let Event::CallStarted(started) = &fact.event {
                let change = started.change.as_ref().unwrap();
                fs::write(&*change.path, "changed by somebody else\n").unwrap();
            }
        }
        None
    });
    let stage = Plan { store: Arc::new(store), ..Plan::default() }.start().await;
    stage.write("ws", "notes.txt", "one two\n");
    let submitted = stage.run(&json!([calls(&[("a", "edit", edit("two", "TWO"))]), says("I see")]));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    let results = stage.results(run).await;
    assert_eq!((results.len(), results[0].failure), (1, Some(Failure::Failed)));
    assert_eq!(stage.text("ws", "notes.txt"), "changed by somebody else\n");
}
