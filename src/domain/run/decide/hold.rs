//! Holding a run: it is paused by a person, and parked where its next request would go out.

use super::Draft;
use crate::domain::{
    event::{Event, InputKind, ParkReason, Parked, Paused, Resumed, Unparked},
    message::Message,
    run::{Phase, Refused},
};

impl Draft<'_> {
    /// The turn under way ends as it would.
    pub(super) fn pause(&mut self) -> Result<(), Refused> {
        if self.run.ending.is_some() {
            return Err(Refused::Ending);
        }
        if self.run.paused {
            return Err(Refused::Paused);
        }
        self.push(Event::Paused(Paused {}));
        Ok(())
    }

    pub(super) fn resume(&mut self) -> Result<(), Refused> {
        if self.run.ending.is_some() {
            return Err(Refused::Ending);
        }
        if !self.run.paused {
            return Err(Refused::NotPaused);
        }
        self.push(Event::Resumed(Resumed {}));
        Ok(())
    }

    pub(super) fn park(&mut self, reason: ParkReason) -> Result<(), Refused> {
        match self.run.phase {
            Phase::Thinking { .. } if self.run.parked.is_none() && self.run.out.is_none() => {
                self.push(Event::Parked(Parked { reason }));
                Ok(())
            }
            Phase::Acting(ref calls) if self.run.parked.is_none() && calls.waits_for_people() => {
                self.push(Event::Parked(Parked { reason }));
                Ok(())
            }
            Phase::New
            | Phase::Queued
            | Phase::Between
            | Phase::Thinking { .. }
            | Phase::Acting(_)
            | Phase::Ended(_) => Err(Refused::OutOfTurn),
        }
    }

    pub(super) fn unpark(&mut self) -> Result<(), Refused> {
        if self.run.parked.is_none() {
            return Err(Refused::OutOfTurn);
        }
        if self.run.paused {
            return Err(Refused::Paused);
        }
        self.push(Event::Unparked(Unparked {}));
        // Between two turns, or about to end, only a run is parked whose log was cut off.
        if self.run.ending.is_some() || matches!(self.run.phase, Phase::Between | Phase::Acting(_)) {
            self.pick_up();
            return Ok(());
        }
        // The request has yet to go out, so it takes along what was said meanwhile; one input a request, as ever.
        let has_one = matches!(self.run.history.last(), Some(Message::User(_)));
        if let Some(input) = self.oldest(InputKind::Steer).filter(|_| !has_one) {
            self.push(input);
        }
        Ok(())
    }
}
