//! Calls that people decide about.

use super::*;
use crate::domain::event::{CommandGroup, FileChange, Grant, Resolution};

fn asked(id: &str, tool: &str, ask: Ask) -> ProposedCall {
    let ProposedCall { judgement, .. } = judged(id, tool, Verdict::Ask);
    let Judgement::Judged { verdict, rule, effect, access, .. } = judgement else { panic!("it is judged") };
    let judgement = Judgement::Judged { verdict, rule, effect, access, ask: Some(ask) };
    ProposedCall { judgement, ..judged(id, tool, Verdict::Ask) }
}

fn change(after: &str) -> FileChange {
    FileChange { path: "/w/a".into(), before: Some("00".to_owned()), after: after.to_owned() }
}

fn ask(after: &str) -> Ask {
    Ask { change: Some(change(after)), preview: Some("-a\n+b\n".into()), expires_at: None }
}

fn until(ms: i64) -> Ask {
    Ask { expires_at: Some(Timestamp::from_micros(ms * 1_000)), ..Ask::default() }
}

/// A run in whose first turn people are to decide about edits of these names.
fn asking(ids: &[&str]) -> Play {
    let mut play = Play::started();
    let calls = ids.iter().map(|id| asked(id, "edit", ask("01"))).collect();
    play.replies(proposal("", calls, Stop::ToolCalls));
    play
}

fn parked(ids: &[&str]) -> Play {
    let mut play = asking(ids);
    play.tell(Input::Park(ParkReason::Approval));
    play
}

fn answer(approval: u32, answer: Answer, command: &str) -> Input {
    Input::Resolve { approval, answer, command: command.into(), by: Some("ada".into()) }
}

fn approve(approval: u32) -> Input {
    answer(approval, Answer::Approve(None), "k1")
}

fn reject(approval: u32) -> Input {
    answer(approval, Answer::Reject(Some("not now".into())), "k1")
}

fn again(id: &str, after: &str) -> Input {
    let (access, rule) = (Vec::new(), "a rule".to_owned());
    Input::AskAgain { call: CallId::new(id), access, rule, ask: ask(after) }
}

fn resolutions(play: &Play) -> Vec<(u32, Resolution)> {
    let resolved = play.log.iter().filter_map(|fact| {
        let Event::ApprovalResolved(resolved) = &fact.event else { return None };
        Some((resolved.approval, resolved.resolution))
    });
    resolved.collect()
}

#[test]
fn a_call_that_a_person_is_to_decide_about_is_owed_once_it_is_approved_and_is_what_was_approved() {
    let mut play = Play::started();
    let kinds = play.replies(proposal("", vec![asked("a", "edit", ask("01"))], Stop::ToolCalls));
    assert_eq!(kinds, ["message", "decision", "approval_requested"]);
    assert_eq!(play.run.owed(), []);
    assert!(play.run.waits_for_people());
    assert_eq!(play.tell(approve(1)), ["approval_resolved"]);
    let owed = play.run.owed();
    let [Effect::RunCall { approved: Some(approved), doubt: None, .. }] = &*owed else { panic!("{owed:?}") };
    assert_eq!((approved.approval, &approved.change), (1, &Some(change("01"))));
    play.grants("a");
    assert_eq!(play.ends("a"), ["result", "turn_end", "turn_start"]);
    assert!(!play.run.asks_people());
}

#[test]
fn where_nobody_is_there_to_be_asked_it_is_denied() {
    let mut play = Play::started();
    let calls = vec![judged("a", "edit", Verdict::Ask)];
    play.replies(proposal("", calls, Stop::ToolCalls));
    assert_eq!(play.results(), [("a", Some(Failure::Denied))]);
}

#[test]
fn a_call_that_policy_denies_is_never_asked_about() {
    let mut play = Play::started();
    let mut call = asked("a", "edit", ask("01"));
    if let Judgement::Judged { verdict, .. } = &mut call.judgement {
        *verdict = Verdict::Deny;
    }
    let kinds = play.replies(proposal("", vec![call], Stop::ToolCalls));
    assert_eq!(kinds, ["message", "decision", "result", "turn_end", "turn_start"]);
}

#[test]
fn a_rejected_call_is_answered_with_the_reason_and_does_not_run() {
    let mut play = asking(&["a"]);
    assert_eq!(play.tell(reject(1)), ["approval_resolved", "result", "turn_end", "turn_start"]);
    assert_eq!(play.results(), [("a", Some(Failure::Denied))]);
    assert_eq!(play.transcript().last().unwrap(), "tool a: denied: a person rejected it: not now");
}

#[test]
fn other_calls_of_the_answer_run_meanwhile_and_the_run_parks_when_nothing_else_is_left() {
    let mut play = Play::started();
    let calls = vec![call("r", "read"), asked("a", "edit", ask("01"))];
    play.replies(proposal("", calls, Stop::ToolCalls));
    assert_eq!(play.attempt(Input::Park(ParkReason::Approval)), Err(Refused::OutOfTurn));
    play.grants("r");
    assert_eq!(play.ends("r"), ["result"]);
    assert!(play.run.waits_for_people());
    assert_eq!(play.tell(Input::Park(ParkReason::Approval)), ["parked"]);
    assert_eq!(play.run.owed(), []);
}

#[test]
fn a_parked_run_hears_of_an_approval_when_it_has_a_slot_again() {
    let mut play = parked(&["a", "b"]);
    assert_eq!(play.tell(approve(2)), ["approval_resolved"]);
    assert!(!play.run.waits_for_people());
    assert_eq!(play.run.owed(), [], "it has no slot");
    assert_eq!(play.tell(Input::Unpark), ["unparked"]);
    assert_eq!(play.run.owed().len(), 1);
    play.grants("b");
    assert_eq!(play.ends("b"), ["result"]);
    assert!(play.run.waits_for_people(), "the other one is still to be decided");
}

#[test]
fn what_was_rejected_while_a_run_was_parked_is_answered_when_it_goes_on() {
    let mut play = parked(&["a", "b"]);
    assert_eq!(play.tell(reject(1)), ["approval_resolved"]);
    assert_eq!(play.tell(answer(2, Answer::Reject(None), "k2")), ["approval_resolved"]);
    let kinds = play.tell(Input::Unpark);
    assert_eq!(kinds, ["unparked", "result", "result", "turn_end", "turn_start"]);
    assert_eq!(play.results(), [("a", Some(Failure::Denied)), ("b", Some(Failure::Denied))]);
}

#[test]
fn the_same_answer_again_changes_nothing_and_any_other_comes_too_late() {
    let mut play = parked(&["a"]);
    play.tell(approve(1));
    let late = Err(Refused::Resolved(Resolution::Approved));
    let check = |play: &mut Play| {
        assert_eq!(play.attempt(approve(1)), Err(Refused::Unchanged));
        assert_eq!(play.attempt(answer(1, Answer::Approve(None), "k2")), late, "another name");
        assert_eq!(play.attempt(reject(1)), late, "the same name with another answer");
    };
    check(&mut play);
    play.tell(Input::Unpark);
    play.grants("a");
    play.ends("a");
    check(&mut play);
    play.says("done");
    check(&mut play);
    assert_eq!(play.attempt(approve(7)), Err(Refused::Ended));
}

#[test]
fn there_is_no_approval_that_was_not_asked_for() {
    let mut play = asking(&["a"]);
    for number in [0, 2, u32::MAX] {
        assert_eq!(play.attempt(approve(number)), Err(Refused::NoApproval));
    }
}

#[test]
fn an_approval_of_what_is_something_else_by_now_is_not_used_and_a_person_is_asked_again_three_times_at_most()
{
    let mut play = asking(&["a"]);
    for number in 1..=2 {
        play.tell(approve(number));
        assert_eq!(play.tell(again("a", "02")), ["approval_resolved", "approval_requested"]);
        assert_eq!(play.run.owed(), []);
        assert_eq!(play.attempt(approve(number)), Err(Refused::Unchanged), "the same answer");
        let other = answer(number, Answer::Approve(None), "k2");
        assert_eq!(play.attempt(other), Err(Refused::Resolved(Resolution::Superseded)));
    }
    play.tell(approve(3));
    let kinds = play.tell(again("a", "03"));
    assert_eq!(kinds, ["approval_resolved", "result", "turn_end", "turn_start"]);
    assert_eq!(play.results(), [("a", Some(Failure::Denied))]);
}

#[test]
fn a_call_that_has_started_is_not_asked_about_again() {
    let mut play = asking(&["a"]);
    play.tell(approve(1));
    play.grants("a");
    assert_eq!(play.attempt(again("a", "02")), Err(Refused::UnknownCall));
}

#[test]
fn an_allowed_call_that_turns_out_to_need_a_person_is_asked_about() {
    let mut play = Play::acting(&[("a", "edit")]);
    assert_eq!(play.tell(again("a", "02")), ["approval_requested"]);
    assert_eq!(play.tell(approve(1)), ["approval_resolved"]);
    assert_eq!(play.run.owed().len(), 1);
}

#[test]
fn what_nobody_answers_in_time_is_denied_and_nothing_else() {
    let mut play = Play::started();
    let calls =
        vec![asked("a", "bash", until(5)), asked("b", "bash", until(9)), asked("c", "bash", ask("01"))];
    play.replies(proposal("", calls, Stop::ToolCalls));
    play.now = 4;
    assert_eq!(play.attempt(Input::Expire), Err(Refused::Unchanged));
    play.now = 5;
    assert_eq!(play.tell(Input::Expire), ["approval_resolved", "result"]);
    assert_eq!(play.results(), [("a", Some(Failure::Denied))]);
    play.tell(Input::Park(ParkReason::Approval));
    play.now = 10;
    assert_eq!(play.tell(Input::Expire), ["approval_resolved"]);
    assert_eq!(play.tell(Input::Unpark), ["unparked", "result"]);
}

#[test]
fn a_run_that_is_ended_withdraws_what_it_asked() {
    for mut play in [asking(&["a"]), parked(&["a"])] {
        let kinds = play.tell(Input::End(Outcome::Cancelled));
        assert_eq!(kinds, ["cancel_requested", "approval_resolved", "result", "turn_end", "run_end"]);
        assert_eq!(resolutions(&play), [(1, Resolution::Withdrawn)]);
        assert_eq!(play.attempt(approve(1)), Err(Refused::Resolved(Resolution::Withdrawn)));
    }
}

#[test]
fn a_call_that_is_cancelled_withdraws_what_was_asked_about_it() {
    let mut play = asking(&["a", "b"]);
    let kinds = play.tell(Input::CancelCall(CallId::new("a")));
    assert_eq!(kinds, ["approval_resolved", "result"]);
    assert_eq!(play.results(), [("a", Some(Failure::AbortedBeforeStart))]);
}

#[test]
fn an_approval_outlives_the_process_that_asked_for_it() {
    let mut play = asking(&["a", "b"]);
    assert_eq!(play.restarts(), ["restart"]);
    assert_eq!(play.tell(approve(1)), ["approval_resolved"]);
    assert_eq!(play.restarts(), ["restart"]);
    assert_eq!(play.run.owed().len(), 1);
    play.grants("a");
    play.ends("a");
    play.tell(Input::Park(ParkReason::Approval));
    assert_eq!(play.tell(reject(2)), ["approval_resolved"]);
    // Its process dies before the run had a slot again, and once more after that.
    assert_eq!(play.tell(Input::Unpark), ["unparked", "result", "turn_end", "turn_start"]);
}

#[test]
fn an_approved_change_that_was_interrupted_is_made_once_at_most() {
    let mut play = asking(&["a"]);
    play.tell(approve(1));
    play.tell(granted("a", Some(change("01"))));
    play.restarts();
    let owed = play.run.owed();
    assert!(matches!(&*owed, [Effect::RunCall { doubt: Some(_), .. }]), "{owed:?}");
    assert_eq!(play.tell(Input::NotMade(CallId::new("a"))), ["decision"]);
    let owed = play.run.owed();
    let [Effect::RunCall { approved: Some(approved), doubt: None, .. }] = &*owed else { panic!("{owed:?}") };
    assert_eq!(approved.change, Some(change("01")), "it is still bound to what was approved");
}

#[test]
fn an_approved_command_that_was_interrupted_is_not_repeated() {
    let mut play = Play::started();
    play.replies(proposal("", vec![asked("a", "bash", Ask::default())], Stop::ToolCalls));
    play.tell(approve(1));
    play.grants("a");
    play.restarts();
    assert_eq!(play.results(), [("a", Some(Failure::OutcomeUnknown))]);
}

#[test]
fn what_is_approved_for_the_run_is_kept() {
    let mut play = asking(&["a", "b"]);
    let grant = Grant { tool: "edit".into(), pattern: "src/**".into() };
    play.tell(answer(1, Answer::Approve(Some(grant.clone())), "k1"));
    play.tell(approve(2));
    assert_eq!(play.run.grants().collect::<Vec<_>>(), [&grant]);
    play.tell(again("a", "02"));
    assert_eq!(play.run.grants().collect::<Vec<_>>(), [&grant], "though the call had become something else");
}

#[test]
fn waiting_for_people_takes_no_time_of_the_run() {
    let mut play = Play::started();
    play.now = 10;
    play.replies(proposal("", vec![asked("a", "edit", ask("01"))], Stop::ToolCalls));
    play.tell(Input::Park(ParkReason::Approval));
    play.now = 1_000;
    play.tell(approve(1));
    play.tell(Input::Unpark);
    let now = Timestamp::from_micros(1_000_000);
    assert_eq!(play.run.wall(now), Duration::from_millis(10));
    assert_eq!(play.run.active(now), Duration::from_millis(10));
}

#[test]
fn the_processes_of_a_call_are_known_until_it_has_its_result() {
    let mut play = Play::acting(&[("a", "bash"), ("b", "bash")]);
    let group = CommandGroup { call: CallId::new("a"), pid: 4, started: 5, boot: "b".into() };
    assert_eq!(play.attempt(Input::Grouped(group.clone())), Err(Refused::UnknownCall), "it has not started");
    play.grants("a");
    assert_eq!(play.tell(Input::Grouped(group.clone())), ["command_group"]);
    assert_eq!(play.run.command_groups().collect::<Vec<_>>(), [&group]);
    play.ends("a");
    assert_eq!(play.run.command_groups().count(), 0);
}

#[test]
fn what_was_allowed_elsewhere_is_neither_done_nor_granted_here() {
    let mut play = asking(&["a", "b", "c"]);
    let grant = Grant { tool: "edit".into(), pattern: "src/**".into() };
    play.tell(answer(1, Answer::Approve(Some(grant)), "k1"));
    play.tell(approve(2));
    play.grants("b");
    play.tell(Input::Restart { cause: RestartCause::Import, error: None });
    let (unstarted, unknown) = (Some(Failure::AbortedBeforeStart), Some(Failure::OutcomeUnknown));
    assert_eq!(play.results(), [("a", unstarted), ("b", unknown), ("c", unstarted)]);
    assert_eq!(play.run.grants().count(), 0);
    assert!(play.run.open_approvals().next().is_none());
}
