//! Answers, event by event.
