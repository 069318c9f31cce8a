//! Reads recorded answers: the bytes of a stream, without a server.
//!
//! The decoding is the one that the providers use, so what is found out here holds for them. Knows nothing of HTTP.

use super::{
    Delta, ModelError, anthropic,
    exchange::{Codec, Deltas, Reading},
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
}
