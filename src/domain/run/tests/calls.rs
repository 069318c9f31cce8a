//! Calls: their names, their verdicts, and reports about them that come late, twice or out of order.

use super::*;

#[test]
fn the_model_sees_results_in_the_order_in_which_it_asked() {
    let mut play = Play::acting(&[("a", "read"), ("b", "read"), ("c", "read")]);
    for id in ["c", "a", "b"] {
        play.grants(id);
    }
    for id in ["b", "c", "a"] {
        play.ends(id);
    }
    assert_eq!(play.results(), [("b", None), ("c", None), ("a", None)]);
    assert_eq!(
        play.transcript(),
        ["user: task", "model: a b c", "tool a: did a", "tool b: did b", "tool c: did c"]
    );
}

#[test]
fn a_call_is_owed_until_its_result_is_of_record() {
    let mut play = Play::acting(&[("a", "read"), ("b", "bash")]);
    let owed = |play: &Play| play.run.owed().iter().map(Effect::id).collect::<Vec<_>>();
    let call = |id| EffectId::Call(CallId::new(id));
    assert_eq!(owed(&play), [call("a"), call("b")]);
    play.grants("a");
    assert_eq!(owed(&play), [call("a"), call("b")]);
    play.ends("a");
    assert_eq!(owed(&play), [call("b")]);
    play.grants("b");
    play.ends("b");
    assert_eq!(owed(&play), [EffectId::Request(2, 1)]);
}

#[test]
fn a_report_that_comes_late_or_twice_is_refused() {
    let mut play = Play::acting(&[("a", "read"), ("b", "read")]);
    let late =
        Input::Replied { turn: 1, attempt: 1, proposal: Box::new(proposal("x", Vec::new(), Stop::EndTurn)) };
    assert_eq!(play.attempt(late.clone()), Err(Refused::StaleRequest));
    play.grants("a");
    assert_eq!(play.attempt(granted("a", None)), Err(Refused::UnknownCall));
    play.ends("a");
    assert_eq!(play.attempt(granted("a", None)), Err(Refused::UnknownCall));
    assert_eq!(play.attempt(Input::CallEnded(result("a"))), Err(Refused::UnknownCall));
    assert_eq!(play.attempt(Input::CallEnded(result("nobody"))), Err(Refused::UnknownCall));
    play.ends("b");
    assert_eq!(play.attempt(Input::CallEnded(result("b"))), Err(Refused::UnknownCall));
    assert_eq!(play.attempt(late), Err(Refused::StaleRequest));
    play.says("done");
    assert_eq!(play.attempt(Input::CallEnded(result("b"))), Err(Refused::Ended));
}

#[test]
fn a_report_on_an_earlier_request_of_the_turn_is_refused() {
    let mut play = Play::started();
    let first = play.reply(proposal("too late", Vec::new(), Stop::EndTurn));
    play.fails(FaultClass::Timeout, None);
    assert_eq!(play.attempt(first), Err(Refused::StaleRequest));
    play.says("in time");
    assert_eq!(&*play.end().text, "in time");
}

#[test]
fn a_call_id_that_was_used_before_is_renamed_and_the_provider_s_is_kept() {
    let mut play = Play::acting(&[("a", "read"), ("a", "read")]);
    for id in ["a", "a_2"] {
        play.ends(id);
    }
    play.asks(&[("a", "read")]);
    let Phase::Acting(open) = play.run.phase() else { panic!("no call is open") };
    let names = |open: &OpenCall| (open.call.id.clone(), open.call.provider_id.clone());
    assert_eq!(open.iter().map(names).collect::<Vec<_>>(), [(CallId::new("a_3"), Some("a".into()))]);
    play.ends("a_3");
    play.says("done");
    assert_eq!(
        play.transcript(),
        [
            "user: task",
            "model: a a_2",
            "tool a: did a",
            "tool a_2: did a_2",
            "model: a_3",
            "tool a_3: did a_3",
            "model: done"
        ]
    );
}

#[test]
fn a_call_without_an_id_is_given_one() {
    let mut play = Play::started();
    let empty = ProposedCall { id: Some("".into()), ..call("x", "read") };
    play.replies(proposal("", vec![call("", "read"), empty, call("call_1_1", "read")], Stop::ToolCalls));
    let Phase::Acting(open) = play.run.phase() else { panic!("no call is open") };
    let names =
        |open: &OpenCall| (open.call.id.to_string(), open.call.provider_id.as_deref().map(str::to_owned));
    assert_eq!(
        open.iter().map(names).collect::<Vec<_>>(),
        [
            ("call_1_1".to_owned(), None),
            ("call_1_2".to_owned(), None),
            ("call_1_1_2".to_owned(), Some("call_1_1".to_owned()))
        ]
    );
}

#[test]
fn a_denied_call_is_answered_with_the_rule_that_denied_it() {
    let mut play = Play::started();
    let calls =
        vec![judged("a", "bash", Verdict::Deny), judged("b", "bash", Verdict::Ask), call("c", "read")];
    let kinds = play.replies(proposal("", calls, Stop::ToolCalls));
    assert_eq!(kinds, ["message", "decision", "result", "decision", "result", "decision"]);
    assert_eq!(play.results(), [("a", Some(Failure::Denied)), ("b", Some(Failure::Denied))]);
    assert_eq!(play.run.owed().len(), 1);
    play.ends("c");
    assert_eq!(
        play.transcript()[2..],
        ["tool a: denied: a rule", "tool b: denied: a rule, and nobody is there to ask", "tool c: did c"]
    );
}

#[test]
fn a_call_that_cannot_be_judged_is_answered_with_what_is_wrong() {
    let mut play = Play::started();
    let calls = vec![refused("a", Failure::InvalidArguments, "path is missing")];
    assert_eq!(
        play.replies(proposal("", calls, Stop::ToolCalls)),
        ["message", "result", "turn_end", "turn_start"]
    );
    assert_eq!(play.transcript()[2..], ["tool a: path is missing"]);
}
