//! Reads recorded answers: the bytes of a stream, without a server.
//!
//! The decoding is the one that the providers use, so what is found out here holds for them. Knows nothing of HTTP.

use super::{
    Delta, ModelError, anthropic,
    exchange::{Codec, Deltas, Held, Reading},
    openai, responses,
    sse::{Event, Flow},
};

/// An answer that is being read. It has one end: its last event, the end of the stream, or what is wrong with it.
pub struct Answer {
    reading: Reading<Box<dyn Codec>>,
    over: bool,
}

impl Answer {
    /// An answer in Chat Completions.
    pub fn openai() -> Self {
        Self::new(openai::decode::Answer::default())
    }

    /// An answer in Messages.
    pub fn anthropic() -> Self {
        Self::new(anthropic::decode::Answer::default())
    }

    /// An answer in Responses.
    pub fn responses() -> Self {
        Self::new(responses::decode::Answer::default())
    }

    /// The events of any protocol: the data of each is a piece of text, and nothing says that they are all there.
    pub fn events() -> Self {
        Self::new(Events)
    }

    fn new(codec: impl Codec) -> Self {
        Self { reading: Reading::new(Box::new(codec)), over: false }
    }

    /// Takes the next bytes of the stream, cut wherever. What follows the answer's end is not looked at.
    ///
    /// # Errors
    /// The bytes are no answer, or one that tells of an error.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        self.step(|reading| reading.take(bytes))
    }

    /// Takes the end of the stream.
    ///
    /// # Errors
    /// The stream ended before the answer did.
    pub fn end(&mut self) -> Result<(), ModelError> {
        self.step(Reading::end)
    }

    /// The next delta, if it has come. [`Delta::Stop`] comes last, and only from an answer that is whole.
    pub fn delta(&mut self) -> Option<Delta> {
        self.reading.out.pop_front()
    }

    fn step(
        &mut self,
        step: impl FnOnce(&mut Reading<Box<dyn Codec>>) -> Result<Flow, ModelError>,
    ) -> Result<(), ModelError> {
        if !self.over {
            self.over = true;
            self.over = step(&mut self.reading)? == Flow::Done;
        }
        Ok(())
    }
}

struct Events;

impl Codec for Events {
    fn event(&mut self, event: Event<'_>, out: &mut Deltas) -> Result<Flow, ModelError> {
        out.push_back(Delta::Text(event.data.to_owned()));
        Ok(Flow::More)
    }

    fn end(&mut self, _: &mut Deltas) -> Result<(), ModelError> {
        Ok(())
    }

    fn whole(&mut self, _: &str, _: &mut Deltas) -> Result<(), ModelError> {
        Ok(())
    }

    fn held(&self) -> Held {
        Held::default()
    }
}

impl Codec for Box<dyn Codec> {
    fn event(&mut self, event: Event<'_>, out: &mut Deltas) -> Result<Flow, ModelError> {
        (**self).event(event, out)
    }

    fn end(&mut self, out: &mut Deltas) -> Result<(), ModelError> {
        (**self).end(out)
    }

    fn whole(&mut self, body: &str, out: &mut Deltas) -> Result<(), ModelError> {
        (**self).whole(body, out)
    }

    fn held(&self) -> Held {
        (**self).held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first refusal of a stream that goes on and on.
    fn refusal(mut answer: Answer, event: impl Fn(usize) -> String) -> String {
        let mut refused = (0..20_000).filter_map(|at| {
            let taken = answer.take(event(at).as_bytes());
            while answer.delta().is_some() {}
            taken.err()
        });
        refused.next().map(|error| error.message).unwrap_or_default()
    }

    #[test]
    fn arguments_that_go_on_and_on_are_refused_in_every_protocol() {
        let more = "x".repeat(1 << 20);
        let chat =
            |call: &str| format!(r#"data: {{"choices":[{{"delta":{{"tool_calls":[{call}]}}}}]}}"#) + "\n\n";
        let refused = [
            refusal(Answer::openai(), |_| {
                chat(&format!(r#"{{"index":0,"function":{{"name":"x","arguments":"{more}"}}}}"#))
            }),
            refusal(Answer::anthropic(), |at| {
                match at {
                0 => r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"x"}}"#.to_owned() + "\n\n",
                _ => format!(r#"data: {{"type":"content_block_delta","index":0,"delta":{{"partial_json":"{more}"}}}}"#) + "\n\n",
            }
            }),
            refusal(Answer::anthropic(), |at| {
                format!(
                    r#"data: {{"type":"content_block_start","index":{at},"content_block":{{"type":"tool_use","name":"x","input":"{more}"}}}}"#
                ) + "\n\n"
            }),
            refusal(Answer::responses(), |_| {
                format!(
                    r#"data: {{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{more}"}}"#
                ) + "\n\n"
            }),
        ];
        for refused in refused {
            assert_eq!(refused, "the calls of the answer are longer than 16777216 bytes");
        }
    }

    #[test]
    fn calls_and_blocks_without_end_are_refused_in_every_protocol() {
        let refused = [
            refusal(Answer::openai(), |at| {
                format!(r#"data: {{"choices":[{{"delta":{{"tool_calls":[{{"index":{at}}}]}}}}]}}"#) + "\n\n"
            }),
            refusal(Answer::anthropic(), |at| {
                format!(
                    r#"data: {{"type":"content_block_start","index":{at},"content_block":{{"type":"new"}}}}"#
                ) + "\n\n"
            }),
            refusal(Answer::responses(), |at| {
                format!(
                    r#"data: {{"type":"response.output_item.done","output_index":{at},"item":{{"type":"new"}}}}"#
                ) + "\n\n"
            }),
            refusal(Answer::responses(), |at| {
                format!(
                    r#"data: {{"type":"response.output_text.delta","output_index":0,"content_index":{at},"delta":"x"}}"#
                ) + "\n\n"
            }),
        ];
        for refused in refused {
            assert_eq!(refused, "the answer has more than 10000 parts");
        }
    }

    #[test]
    fn arguments_that_come_in_pieces_and_again_as_a_whole_count_once() {
        let more = "x".repeat(6 << 20);
        let event = |kind: &str, field: &str| {
            format!(
                r#"data: {{"type":"response.function_call_arguments.{kind}","output_index":0,"{field}":"{more}"}}"#
            ) + "\n\n"
        };
        let mut answer = Answer::responses();
        for _ in 0..2 {
            assert_eq!(answer.take(event("delta", "delta").as_bytes()), Ok(()));
            assert_eq!(answer.take(event("done", "arguments").as_bytes()), Ok(()));
        }
    }
}
