//! Streams that are cut and garbled in every way.

use super::decode::Answer;
use crate::{
    domain::outcome::Stop,
    model::{
        Delta, ModelError, ProposedCall,
        exchange::{Codec as _, Deltas, Reading},
        sse::{Event, Flow},
    },
};

const STREAM: &str = concat!(
    "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"那 \\ud83d\\ude00\"}\n\n",
    ": ping\n\n",
    "data: {\"type\":\"response.output_item.added\",\"output_index\":1,",
    "\"item\":{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"write\"}}\n\n",
    "data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":1,\"delta\":\"{\\\"c\\\":1}\"}\n\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n",
);

fn decode(bytes: &[u8]) -> (Deltas, Result<Flow, ModelError>) {
    let mut reading = Reading::new(Answer::default());
    let flow = match reading.take(bytes) {
        Ok(Flow::More) => reading.end(),
        flow => flow,
    };
    (reading.out, flow)
}

#[test]
fn an_answer_cut_anywhere_gives_its_calls_whole_or_none() {
    let call =
        ProposedCall { id: Some("a".into()), name: "write".into(), arguments: r#"{"c":1}"#.to_owned() };
    let last = [Delta::Call(call), Delta::Stop(Stop::ToolCalls)];
    let finished = STREAM.trim_end().len();
    for cut in 0..=STREAM.len() {
        let (mut out, end) = decode(&STREAM.as_bytes()[..cut]);
        let told = out.split_off(out.len().saturating_sub(2));
        assert_eq!((told == last, end.is_ok()), (cut >= finished, cut >= finished), "cut at {cut}");
    }
}

#[test]
fn work_on_a_call_is_progress_and_an_empty_piece_is_none() {
    let told = |data: &str| {
        let mut out = Deltas::new();
        assert_eq!(Answer::default().event(Event { name: "", id: "", data }, &mut out), Ok(Flow::More));
        Vec::from(out)
    };
    let piece =
        |delta: &str| format!(r#"{{"type":"response.function_call_arguments.delta","delta":"{delta}"}}"#);
    assert_eq!(told(&piece("{")), [Delta::Progress]);
    assert_eq!(told(&piece("")), []);
    assert_eq!(told(r#"{"type":"response.output_text.delta","delta":""}"#), []);
    assert_eq!(told(r#"{"type":"response.in_progress","response":{"status":"in_progress"}}"#), []);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_bytes_whatever_do_harm(noise in proptest::collection::vec(0_u8..=255, 0..64), at in 0..STREAM.len()) {
        let mut bytes = STREAM.as_bytes().to_vec();
        bytes.splice(at..at, noise);
        let (out, end) = decode(&bytes);
        let stops = out.iter().filter(|delta| matches!(delta, Delta::Stop(_))).count();
        proptest::prop_assert_eq!(stops, usize::from(end.is_ok()));
    }
}
