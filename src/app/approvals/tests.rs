//! What an answer comes to, by whichever way it goes.

use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::Value;

use super::*;
use crate::{
    app::state::State,
    clock::SystemClock,
    config::Durability,
    domain::{
        call::{Access, Arguments, EffectClass, Failure, Mode, Scope, ToolSpec},
        outcome::Stop,
        policy::Verdict,
        run::{Ask, Input, Judgement, Phase, Proposal, ProposedCall, Stage},
    },
    store::memory::MemoryStore,
    tool::{CallContext, Output, Started, Tool, workspace::Workspace},
};

async fn tell(store: &MemoryStore, run: &mut Run, input: Input) {
    let facts = run.decide(input, Timestamp::from_micros(1)).expect("taken");
    store.durable(store.append(run.id(), run.seq(), &facts).expect("taken")).await.expect("durable");
    facts.iter().for_each(|fact| run.evolve(fact));
}

/// A run of task `a` of whose two calls people are asked about the second, and whose process has died.
async fn asking(expires_at: Option<Timestamp>) -> (MemoryStore, Run) {
    let (store, mut run) = (MemoryStore::default(), Run::new(RunId::from_bytes([1; 16])));
    let spec =
        serde_json::json!({"task": "t", "task_id": "a", "attempt": 1, "model": "m", "workspace": "/w"});
    tell(&store, &mut run, Input::Submit(Arc::new(serde_json::from_value(spec).expect("a spec")))).await;
    tell(&store, &mut run, Input::Start { model: "m".into(), tools: vec!["bash".into()] }).await;
    let call = |id: &str, verdict, ask| ProposedCall {
        id: Some(id.into()),
        name: "bash".into(),
        arguments: Arguments::empty(),
        judgement: Judgement::Judged {
            verdict,
            rule: "a rule".to_owned(),
            effect: EffectClass::Outside,
            access: vec![Access { scope: Scope::File, path: "/w/Makefile".into(), mode: Mode::Exclusive }],
            ask,
        },
    };
    let ask = Ask { preview: Some("make [all]".into()), expires_at, change: None };
    let calls = vec![call("c1", Verdict::Allow, None), call("c2", Verdict::Ask, Some(ask))];
    let proposal = Proposal { calls, ..Proposal::new(Stop::ToolCalls) };
    tell(&store, &mut run, Input::Replied { turn: 1, attempt: 1, proposal: Box::new(proposal) }).await;
    (store, run)
}

fn reject() -> Answer {
    Answer::Reject(Some("no".into()))
}

#[tokio::test]
async fn an_answer_to_a_run_that_nobody_works_on_adds_that_fact_alone() {
    let (store, run) = asking(None).await;
    let found = find(&store, "a.1").await.expect("an approval");
    let by = Some("ada".into());
    let seq =
        found.resolve_unattended(&store, &SystemClock, reject(), ("k".into(), by)).await.expect("taken");
    assert_eq!(seq, run.seq().plus(1));
    let found = found.again(&store).await.expect("readable");
    assert_eq!(found.log.last().map(|last| last.fact.event.kind()), Some("approval_resolved"));
    let Phase::Acting(calls) = found.run.phase() else { panic!("{:?}", found.run.phase()) };
    assert!(matches!(calls[1].stage, Stage::Rejected(..)), "{:?}", calls[1].stage);
}

#[tokio::test]
async fn an_answer_is_taken_once_and_another_is_told_of_it() {
    let (store, _) = asking(None).await;
    let found = find(&store, "a.1").await.expect("an approval");
    assert!(matches!(found.answered(&reject(), "k"), Ok(None)));
    let given = ("k".into(), Some("ada".into()));
    found.resolve_unattended(&store, &SystemClock, reject(), given.clone()).await.expect("taken");
    let found = found.again(&store).await.expect("readable");
    assert!(matches!(found.answered(&reject(), "k"), Ok(Some(Same))));
    for (answer, command) in [(reject(), "k2"), (Answer::Approve(None), "k")] {
        let told = found.answered(&answer, command).expect_err("a conflict").to_string();
        assert!(
            told.starts_with("it was rejected already by ada at 20") && told.ends_with("(command k)"),
            "{told}"
        );
        let again = found.resolve_unattended(&store, &SystemClock, answer, (command.into(), None)).await;
        assert!(matches!(again, Err(AnswerError::Resolved(_))));
    }
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_none_though_nobody_has_said_so_yet() {
    let (store, run) = asking(Some(Timestamp::from_micros(2))).await;
    let found = find(&store, "a.1").await.expect("an approval");
    let late =
        found.resolve_unattended(&store, &SystemClock, Answer::Approve(None), ("k".into(), None)).await;
    assert!(matches!(late, Err(AnswerError::Resolved(ref told)) if told.contains("in time")), "{late:?}");
    assert_eq!(found.again(&store).await.expect("readable").run.seq(), run.seq());
}

#[tokio::test]
async fn a_name_that_stands_for_no_approval_is_told_what_would() {
    let (store, _) = asking(None).await;
    for (name, told) in [
        ("a", "want RUN.N"),
        ("a.", "want RUN.N"),
        (".1", "want RUN.N"),
        ("a.0", "want RUN.N"),
        ("a.-1", "want RUN.N"),
        ("a.2", "it has approval 1 alone"),
        ("b.1", "no run or task is called \"b\""),
    ] {
        let error = find(&store, name).await.expect_err(name).to_string();
        assert!(error.contains(told), "{name}: {error}");
    }
    let by_id = find(&store, "01010101-0101-0101-0101-010101010101.1").await.expect("an approval");
    assert_eq!(by_id.name(), "01010101-0101-0101-0101-010101010101.1");
}

#[tokio::test]
async fn a_pattern_for_the_run_is_checked_before_anything_is_answered() {
    let (store, _) = asking(None).await;
    let found = find(&store, "a.1").await.expect("an approval");
    let answer = |pattern: &str| found.answer(&Said::Approve { for_run: Some(pattern.to_owned()) }, None);
    for pattern in ["make *", "=make [all]"] {
        let grant = Grant { tool: "bash".into(), pattern: pattern.into() };
        assert_eq!(answer(pattern).expect("a pattern"), Answer::Approve(Some(grant)));
    }
    for wrong in ["", "make && rm", "\"make", "rm *", "make $", "=make", "Makefile"] {
        assert!(matches!(answer(wrong), Err(AnswerError::Pattern { .. })), "{wrong}");
    }
    let (tools, workspaces) = (Toolbox::default(), Workspaces::default());
    assert_eq!(found.exact_pattern(&tools, &workspaces).await.as_deref(), Some("=make [all]"));
}

/// A tool that has the name of one that runs commands, and runs none: its calls are about a file.
struct Plain(ToolSpec);

impl Tool for Plain {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self) -> EffectClass {
        EffectClass::Outside
    }

    fn access(&self, _: &Workspace, _: &Value) -> Result<Vec<Access>, String> {
        Ok(Vec::new())
    }

    fn start(self: Arc<Self>, _: CallContext, _: Value) -> BoxFuture<'static, Started> {
        async { Started::Ended(Output::failed(Failure::Failed, "no")) }.boxed()
    }
}

#[tokio::test]
async fn what_is_shown_of_a_call_makes_it_no_command_where_its_tool_runs_none() {
    let (store, _) = asking(None).await;
    let found = find(&store, "a.1").await.expect("an approval");
    let mut tools = Toolbox::default();
    let spec = ToolSpec {
        name: "bash".into(),
        description: "d".into(),
        schema: Arc::new(serde_json::json!({"type": "object"})),
    };
    tools.register(Arc::new(Plain(spec))).expect("fit");
    let said = |pattern: &str| Said::Approve { for_run: Some(pattern.to_owned()) };
    // A path can be called so; no command can.
    found.answer(&said("{Makefile,make && rm}"), Some(&tools)).expect("a path");
    for other in ["src/**", "make && rm", "w/Makefile"] {
        assert!(found.answer(&said(other), Some(&tools)).is_err(), "{other} is not its file");
    }
    assert!(found.answer(&said("/etc/*"), Some(&tools)).is_err(), "no path in the workspace");
    assert_eq!(
        found.exact_pattern(&tools, &Workspaces::default()).await.as_deref(),
        Some("Makefile"),
        "its file, and not what is shown"
    );
}

#[tokio::test]
async fn answers_that_were_left_are_put_on_record_and_what_is_none_is_set_aside() {
    let (store, _) = asking(None).await;
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::below(None, folder.path());
    spool.settle(&store, &SystemClock).await;
    let run = RunId::from_bytes([1; 16]);
    for (approval, answer) in [(7, reject()), (1, Answer::Approve(None)), (1, reject())] {
        spool.put(&Spooled::new((run, approval), answer, ("k".into(), None))).expect("put");
    }
    let answers = folder.path().join("answers");
    std::fs::write(answers.join("0.json"), "{}").expect("written");
    spool.settle(&store, &SystemClock).await;
    let left: Vec<_> =
        std::fs::read_dir(&answers).expect("there").map(|one| one.expect("one").file_name()).collect();
    assert_eq!(left, ["0.bad"]);
    let found = find(&store, "a.1").await.expect("an approval");
    let (resolved, _) = found.resolution().expect("answered");
    assert_eq!((resolved.resolution, resolved.command.as_deref()), (Resolution::Approved, Some("k")));
}

#[tokio::test]
async fn an_answer_stays_while_the_log_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = State::to_write(&folder.path().join("state"), Durability::Process).expect("a state");
    let spool = Spool::below(None, folder.path());
    let answer = Spooled::new((RunId::from_bytes([1; 16]), 1), reject(), ("k".into(), None));
    let place = spool.put(&answer).expect("put");
    state.close().await;
    spool.settle(&*state.store, &SystemClock).await;
    assert!(place.exists(), "nobody knows yet what became of it");
    let open = MemoryStore::default();
    spool.settle(&open, &SystemClock).await;
    assert!(!place.exists(), "there is no such run");
}

#[test]
fn what_is_no_file_is_not_waited_for_and_keeps_no_answer_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::below(None, folder.path());
    let answer = Spooled::new((RunId::from_bytes([1; 16]), 1), reject(), ("k".into(), None));
    spool.put(&answer).expect("put");
    let answers = folder.path().join("answers");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, answers.join("0.json"), kind, mode, 0).expect("a pipe");
    std::fs::create_dir(answers.join("1.json")).expect("a folder");
    let come = spool.come();
    assert_eq!(come.answers.into_iter().map(|(_, answer)| answer).collect::<Vec<_>>(), [answer]);
    assert_eq!(come.unread.len(), 2);
}

#[tokio::test]
async fn a_run_is_called_by_its_task_only_while_that_stands_for_it_and_else_by_enough_of_its_id() {
    let (store, first) = asking(None).await;
    assert_eq!(name_of_run(&store, &first).await.expect("readable"), "a");
    let submit = async |id: [u8; 16], task: Option<&str>| {
        let mut run = Run::new(RunId::from_bytes(id));
        let spec =
            serde_json::json!({"task": "t", "task_id": task, "attempt": 2, "model": "m", "workspace": "/w"});
        let spec = Arc::new(serde_json::from_value(spec).expect("a spec"));
        tell(&store, &mut run, Input::Submit(spec)).await;
        run
    };
    let second = submit([2; 16], Some("a")).await;
    assert_eq!(name_of_run(&store, &second).await.expect("readable"), "a");
    assert_eq!(name_of_run(&store, &first).await.expect("readable"), "01010101");
    submit([1, 1, 1, 1, 1, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], None).await;
    assert_eq!(name_of_run(&store, &first).await.expect("readable"), "01010101-0101-0101");
}
