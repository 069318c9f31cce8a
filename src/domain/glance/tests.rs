//! What a glance keeps of a run.

use super::*;
use crate::domain::{
    event::{TurnStart, decode},
    id::Pos,
};

fn facts(stored: &str) -> Vec<Fact> {
    let read = decode(stored.as_bytes(), run(), Pos::new(1), Seq::new(1)).unwrap();
    read.into_iter().map(|one| one.fact).collect()
}

fn run() -> RunId {
    RunId::from_bytes([7; 16])
}

#[test]
fn it_tells_the_calls_that_run_and_wait_and_what_for() {
    let mut glance = Glance::new(run());
    for fact in facts(
        r#"[
        {"v":1,"at":1,"turn":0,"kind":"submitted","data":{"task":"t","task_id":"t-1","attempt":2,"model":"m","workspace":"/w"}},
        {"v":1,"at":2,"turn":0,"kind":"run_start","data":{"model":"p:m","tools":[]}},
        {"v":1,"at":3,"turn":1,"kind":"turn_start","data":{}},
        {"v":1,"at":4,"turn":1,"kind":"model_retry","data":{"attempt":1,"class":"stall","error":"e","not_before":5}},
        {"v":1,"at":6,"turn":1,"kind":"message","data":{"text":"\n two\nlines","calls":[
            {"id":"a","name":"read","arguments":{}},{"id":"b","name":"edit","arguments":{}},{"id":"c","name":"edit","arguments":{}}
        ],"stop":"tool_calls","usage":{"input":5,"output":2}}},
        {"v":1,"at":6,"turn":1,"kind":"decision","data":{"call":"b","verdict":"allow","rule":"r","effect":"write","access":[
            {"scope":"tree","path":"/w","mode":"shared"},{"scope":"file","path":"/w/b","mode":"exclusive"}
        ]}},
        {"v":1,"at":7,"turn":1,"kind":"decision","data":{"call":"c","verdict":"allow","rule":"r","effect":"write"}},
        {"v":1,"at":8,"turn":1,"kind":"call_started","data":{"call":"c"}},
        {"v":1,"at":9,"turn":1,"kind":"result","data":{"call":"a","ok":true,"output":"o"}}
    ]"#,
    ) {
        glance.evolve(&fact);
    }
    let calls: Vec<_> = glance
        .calls()
        .iter()
        .map(|call| {
            let access = call.access.as_ref().map(ToString::to_string);
            (&*call.tool, call.stage.as_str(), call.since.as_micros(), access)
        })
        .collect();
    let wanted = Some("exclusive file /w/b".to_owned());
    assert_eq!(calls, [("edit", "waiting", 6, wanted), ("edit", "running", 8, None)]);
    assert_eq!((&*glance.text, glance.answered, glance.usage.total()), ("two lines", 1, 7));
    assert_eq!((glance.task_id.as_deref(), glance.attempt, &*glance.model), (Some("t-1"), 2, "m"));
    let turn = Fact { at: Timestamp::from_micros(9), turn: 2, event: Event::TurnStart(TurnStart {}) };
    glance.evolve(&turn);
    assert_eq!(glance.stand, Stand::Thinking { retries: 0, not_before: Timestamp::from_micros(9) });
    assert_eq!((glance.seq, glance.turn), (Seq::new(10), 2));
}

#[test]
fn it_stays_small_whatever_is_said() {
    assert!(size_of::<Glance>() <= 320, "{}", size_of::<Glance>());
    let long = "é".repeat(10_000);
    let mut glance = Glance::new(run());
    for fact in facts(&format!(
        r#"[{{"v":1,"at":6,"turn":1,"kind":"message","data":{{"text":"{long}","calls":[
            {{"id":"a","name":"{long}","arguments":{{}}}}
        ],"stop":"tool_calls","usage":{{"input":5,"output":2}}}}}}]"#
    )) {
        glance.evolve(&fact);
    }
    assert_eq!(glance.text.chars().count(), TEXT_CHARS);
    assert_eq!(glance.calls()[0].tool.chars().count(), NAME_CHARS);
}

#[test]
fn it_is_interrupted_until_somebody_is_at_work_on_it_again() {
    let mut glance = Glance::new(run());
    let mut tell = |kind: &str, data: &str| {
        let stored = format!(r#"[{{"v":1,"at":1,"turn":1,"kind":"{kind}","data":{data}}}]"#);
        for fact in facts(&stored) {
            glance.evolve(&fact);
        }
        glance.is_interrupted()
    };
    tell("submitted", r#"{"task":"t","attempt":1,"model":"m","workspace":"/w"}"#);
    tell("run_start", r#"{"model":"p:m","tools":[]}"#);
    assert!(!tell("turn_start", "{}"));
    assert!(tell("interrupted", "{}"));
    assert!(tell("input_queued", r#"{"input":1,"when":"steer","text":"x"}"#));
    assert!(!tell("restart", r#"{"cause":"process"}"#));
    assert!(tell("interrupted", "{}"));
    assert!(!tell("parked", r#"{"reason":"quota"}"#));
}
