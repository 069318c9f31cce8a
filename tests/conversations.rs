//! Whatever happens to a run, the conversation that its model is shown is one that the strictest of servers accepts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use herder::{
    domain::{
        call::{Arguments, EffectClass, Failure, ToolResult},
        event::{InputKind, ParkReason, RestartCause},
        id::{CallId, RunId},
        json::RawJson,
        message::{Kept, Message, RequestRecord, validate},
        outcome::{FaultClass, Outcome, Stop},
        policy::Verdict,
        run::{Input, Judgement, Phase, Proposal, ProposedCall, Run, Stage},
        time::Timestamp,
        usage::Usage,
    },
    model::{
        Request, anthropic,
        openai::{self, Profile, SendReasoning},
        responses,
    },
};
use proptest::prelude::*;
use serde_json::{Value, json, value::to_raw_value};

#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "support/mod.rs"]
mod support;

use support::{chat, messages, server::Rules};

/// A way to send a conversation, and what checks it as the strictest of its servers does.
struct Codec {
    name: &'static str,
    encode: fn(&Request) -> Vec<u8>,
    check: fn(&Value) -> Result<(), String>,
}

const CODECS: &[Codec] = &[
    Codec {
        name: "chat completions",
        encode: |request| openai::body(request, Profile::default()).unwrap(),
        check: |body| chat::check(body, &Rules::default()),
    },
    Codec {
        name: "chat completions with reasoning",
        encode: |request| {
            let profile = Profile { reasoning: SendReasoning::AsReasoningContent, ..Profile::default() };
            openai::body(request, profile).unwrap()
        },
        check: |body| chat::check(body, &Rules { reasoning: true, ..Rules::default() }),
    },
    Codec { name: "messages", encode: |request| anthropic::body(request).unwrap(), check: messages::check },
    Codec {
        name: "messages with thinking",
        encode: |request| {
            let mut request = request.clone();
            request.params.reasoning_effort = Some("low".to_owned());
            anthropic::body(&request).unwrap()
        },
        check: messages::check,
    },
    Codec {
        name: "responses",
        encode: |request| responses::body(request).unwrap(),
        check: support::responses::check,
    },
];

/// Models that answer, by their names at their servers; the first two are asked next.
const MODELS: &[&str] = &["m", "second", "elsewhere"];

/// Bytes of the ids that models themselves give, whose servers are the strictest.
const LONGEST_OWN: usize = 20;

/// Ids that some server or other gives.
const IDS: &[&str] = &[
    "",
    " ",
    "a",
    "b",
    "a_2",
    "functions.read:0",
    "call 1",
    "那\u{1F600}",
    "id_",
    "a\nb\u{7f}",
    "chatcmpl-tool-0123456789abcdef0123456789abcdef",
    "0123456789012345678901234567890123456789012345678901234567890123456789",
    "0123456789012345678901234567890123456789012345678901234567890123456789_",
];

const NAMES: &[&str] = &[
    "read",
    "edit",
    "bash",
    "",
    "open a window!",
    "functions.read",
    "読む",
    "a_name_that_no_server_takes_since_it_is_longer_than_sixty_four_characters",
];

/// What servers want back with an answer, of both protocols that have such blocks, in order and out of it.
fn blocks(which: &str) -> Vec<Value> {
    let stub = |bytes: usize| json!({"type": "text", "bytes": bytes});
    let (call, sealed) = (
        json!({"type": "tool_use"}),
        |id: &str| json!({"type": "reasoning", "id": id, "encrypted_content": "x"}),
    );
    match which {
        "thought" => vec![messages::thinks("hm"), messages::redacted()],
        "among texts" => {
            vec![messages::thinks("a"), stub(2), messages::redacted(), stub(900), messages::thinks("")]
        }
        "among calls" => {
            vec![stub(1), call.clone(), messages::thinks("a"), call.clone(), call, messages::thinks("b")]
        }
        "sealed" => vec![sealed("r1")],
        "sealed among others" => {
            let (said, called) = (json!({"type": "message"}), json!({"type": "function_call"}));
            vec![
                sealed("r1"),
                said,
                sealed("r2"),
                called.clone(),
                sealed("r3"),
                called.clone(),
                called,
                sealed("r4"),
            ]
        }
        "unknown" => vec![json!({"type": "novel"}), json!(7), json!({})],
        _ => Vec::new(),
    }
}

const BLOCKS: &[&str] =
    &["", "thought", "among texts", "among calls", "sealed", "sealed among others", "unknown"];

/// Something that happens to a run; `which` chooses among the calls that are there.
#[derive(Clone, Debug)]
enum Step {
    Reply {
        model: &'static str,
        text: &'static str,
        kept: &'static str,
        calls: Vec<(&'static str, &'static str, &'static str, Verdict)>,
        stop: Stop,
        fits: bool,
    },
    Fail {
        class: FaultClass,
        fallback: Option<&'static str>,
    },
    Grant {
        which: usize,
    },
    Finish {
        which: usize,
        output: &'static str,
        failure: Option<Failure>,
    },
    CancelCall {
        which: usize,
    },
    Say(InputKind),
    Pause,
    Resume,
    Park,
    Unpark,
    End,
    Interrupt,
    Restart(RestartCause),
}

fn step() -> impl Strategy<Value = Step> {
    use prop::sample::select;
    let text = select(vec!["", " \n", "words", "\u{1F600} é\n", "\u{FFFD}\0\u{b}"]);
    let call = (
        select(IDS),
        select(NAMES),
        select(vec!["{}", r#"{ "path": "\ud83d", "path": [1e400] }"#, r#"{"\u0000": null}"#]),
        select(vec![Verdict::Allow, Verdict::Allow, Verdict::Allow, Verdict::Deny]),
    );
    let stop = prop_oneof![6 => Just(Stop::ToolCalls), 3 => Just(Stop::EndTurn), 2 => select(Stop::ALL)];
    let reply =
        (select(MODELS), text, select(BLOCKS), prop::collection::vec(call, 0..4), stop, any::<bool>())
            .prop_map(|(model, text, kept, calls, stop, fits)| Step::Reply {
                model,
                text,
                kept,
                calls,
                stop,
                fits,
            });
    let class = prop_oneof![select(FaultClass::ALL), Just(FaultClass::ContextOverflow)];
    let fail = (class, prop::option::of(select(vec!["second", "third"])))
        .prop_map(|(class, fallback)| Step::Fail { class, fallback });
    let failure =
        select(vec![None, None, Some(Failure::Failed), Some(Failure::Cancelled), Some(Failure::TimedOut)]);
    let output = select(vec![
        "",
        "\n",
        "found",
        "a long line of output that will be left out if there is no room for it",
    ]);
    let finish = (any::<usize>(), output, failure).prop_map(|(which, output, failure)| Step::Finish {
        which,
        output,
        failure,
    });
    prop_oneof![
        30 => reply,
        6 => fail,
        30 => any::<usize>().prop_map(|which| Step::Grant { which }),
        30 => finish,
        3 => any::<usize>().prop_map(|which| Step::CancelCall { which }),
        4 => select(vec![InputKind::Steer, InputKind::FollowUp]).prop_map(Step::Say),
        6 => select(vec![Step::Pause, Step::Resume, Step::Park, Step::Unpark, Step::Unpark]),
        1 => Just(Step::End),
        1 => Just(Step::Interrupt),
        4 => select(vec![RestartCause::Process, RestartCause::Actor]).prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_model_is_shown_is_accepted_whatever_happens_to_the_run(
        formal in any::<bool>(),
        retries in any::<bool>(),
        system in prop::sample::select(vec![None, Some(" "), Some("rules")]),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut run = begun(formal, retries, system);
        for step in steps {
            if let Some(input) = input(&run, step) {
                tell(&mut run, input);
            }
            if matches!(run.phase(), Phase::Thinking { .. } | Phase::Ended(_)) {
                assert_accepted(&run);
            }
        }
    }
}

fn assert_accepted(run: &Run) {
    for budget in [None, Some(0), Some(12), Some(40)] {
        let messages = run.projection(budget).messages;
        assert_eq!(validate(&messages), Ok(()));
        for model in &MODELS[..2] {
            let rules = [Message::System("rules of the house".into())];
            let messages = rules.into_iter().chain(messages.iter().cloned()).collect();
            let request = Request::new((*model).into(), messages);
            for codec in CODECS {
                let body = serde_json::from_slice(&(codec.encode)(&request)).unwrap();
                assert_eq!((codec.check)(&body), Ok(()), "{}: {body}", codec.name);
            }
        }
    }
}

fn begun(formal: bool, retries: bool, system: Option<&str>) -> Run {
    let format = formal.then(|| json!({"type": "json_object"}));
    let task = json!({
        "task": "task", "attempt": 1, "model": "m", "workspace": "/w", "system": system, "response_format": format,
        "on_truncated": if retries { "retry" } else { "block" }, "facts": {"os": "linux"},
    });
    let mut run = Run::new(RunId::from_bytes([7; 16]));
    tell(&mut run, Input::Submit(Arc::new(serde_json::from_value(task).unwrap())));
    tell(&mut run, Input::Start { model: "m".into(), tools: Vec::new() });
    run
}

/// What makes no sense where the run stands is refused, and changes nothing.
fn tell(run: &mut Run, input: Input) {
    for fact in run.decide(input, Timestamp::from_micros(1)).unwrap_or_default() {
        run.evolve(&fact);
    }
}

fn input(run: &Run, step: Step) -> Option<Input> {
    let turn = run.turn();
    let attempt = match run.phase() {
        Phase::Thinking { attempt, .. } => *attempt,
        Phase::New | Phase::Queued | Phase::Between | Phase::Acting(_) | Phase::Ended(_) => 0,
    };
    Some(match step {
        Step::Reply { model, text, kept, calls, stop, fits } => {
            let own = calls.iter().all(|(id, ..)| id.len() <= LONGEST_OWN);
            let request = RequestRecord {
                model: if own { model } else { "elsewhere" }.into(),
                ..RequestRecord::default()
            };
            let calls: Vec<_> = calls.into_iter().map(proposed).collect();
            let blocks =
                blocks(kept).iter().map(|block| RawJson(to_raw_value(block).unwrap().into())).collect();
            let misfit = (!fits && calls.is_empty()).then(|| "no JSON".into());
            let proposal = Proposal {
                text: text.into(),
                reasoning: Some("hm".into()),
                kept: Some(Kept { model: model.into(), blocks }).filter(|kept| !kept.blocks.is_empty()),
                request: Some(Arc::new(request)),
                calls,
                misfit,
                usage: Some(Usage { input: 1, output: 1, ..Usage::default() }),
                ..Proposal::new(stop)
            };
            Input::Replied { turn, attempt, proposal: Box::new(proposal) }
        }
        Step::Fail { class, fallback } => Input::ModelFailed {
            turn,
            attempt,
            class,
            error: "no".to_owned(),
            retry_after: None,
            usage: None,
            waited: std::time::Duration::ZERO,
            shown: run.projection(None).bytes,
            allowed: None,
            fits: false,
            parks: None,
            fallback: fallback.map(Arc::from),
            jitter: 0.5,
        },
        Step::Grant { which } => Input::Granted { call: open(run, which)?, change: None },
        Step::Finish { which, output, failure } => Input::CallEnded(ToolResult {
            call: open(run, which)?,
            ok: failure.is_none(),
            output: output.into(),
            failure,
            terminate: false,
            timing: None,
        }),
        Step::CancelCall { which } => Input::CancelCall(open(run, which)?),
        Step::Say(when) => herder::actor::run::say(when, "go on"),
        Step::Pause => Input::Pause,
        Step::Resume => Input::Resume,
        Step::Park => Input::Park(ParkReason::Paused),
        Step::Unpark => Input::Unpark,
        Step::End => Input::End(Outcome::Cancelled),
        Step::Interrupt => Input::Interrupt,
        Step::Restart(cause) => Input::Restart { cause, error: None },
    })
}

fn proposed((id, name, arguments, verdict): (&str, &str, &str, Verdict)) -> ProposedCall {
    let effect = match name {
        "read" => EffectClass::Read,
        "edit" => EffectClass::Write,
        _ => EffectClass::Outside,
    };
    ProposedCall {
        id: Some(id.into()),
        name: name.into(),
        arguments: match serde_json::from_str::<Value>(arguments) {
            Ok(_) => Arguments::parse(arguments).unwrap(),
            Err(_) => Arguments::spoiled(arguments),
        },
        judgement: Judgement::Judged {
            verdict,
            rule: "a rule".to_owned(),
            effect,
            access: Vec::new(),
            ask: None,
        },
    }
}

/// A call that has no result yet.
fn open(run: &Run, which: usize) -> Option<CallId> {
    let Phase::Acting(calls) = run.phase() else { return None };
    let open: Vec<_> = calls.iter().filter(|open| !matches!(open.stage, Stage::Answered(_))).collect();
    open.get(which.checked_rem(open.len())?).map(|open| open.call.id.clone())
}
