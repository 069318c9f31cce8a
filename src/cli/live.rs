//! Keeps the model's words, which come as they are spoken, in step with the events of record, which come once they are on disk.
//!
//! Words overtake the log: those of a turn are held back until the log has come to it, so that what was said never stands
//! before what it answers, and they are void once their message is of record. Knows nothing of how they are shown.

/// Words that are ahead of the log, in the order in which they came.
#[derive(Debug)]
pub(super) struct Ahead<T> {
    /// The turn that the log has come to.
    turn: u32,
    /// The turn whose message is of record.
    spoken: Option<u32>,
    held: Vec<(u32, T)>,
}

impl<T> Ahead<T> {
    pub(super) const fn new() -> Self {
        Self { turn: 0, spoken: None, held: Vec::new() }
    }

    /// Takes words of a turn in. Given back, if it is time for them.
    pub(super) fn hear(&mut self, turn: u32, words: T) -> Option<T> {
        if self.spoken.is_some_and(|spoken| turn <= spoken) {
            return None;
        }
        if turn <= self.turn {
            return Some(words);
        }
        self.held.push((turn, words));
        None
    }

    /// The log has come to an event of this turn. What is due now is to be shown after it.
    pub(super) fn reach(&mut self, turn: u32, is_message: bool) -> Vec<T> {
        self.turn = self.turn.max(turn);
        if is_message {
            self.spoken = self.spoken.max(Some(turn));
        }
        let held = std::mem::take(&mut self.held);
        let (due, held): (Vec<_>, Vec<_>) = held.into_iter().partition(|(turn, _)| *turn <= self.turn);
        self.held = held;
        let is_void = |turn| self.spoken.is_some_and(|spoken| turn <= spoken);
        due.into_iter().filter(|(turn, _)| !is_void(*turn)).map(|(_, words)| words).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wait_for_their_turn_and_are_void_after_its_message() {
        let mut ahead = Ahead::new();
        assert!(ahead.reach(1, false).is_empty());
        assert_eq!(ahead.hear(1, "a"), Some("a"));
        assert_eq!((ahead.hear(2, "b"), ahead.hear(2, "c"), ahead.hear(3, "d")), (None, None, None));
        assert!(ahead.reach(1, true).is_empty());
        assert_eq!(ahead.hear(1, "late"), None);
        assert_eq!(ahead.reach(2, false), ["b", "c"]);
        assert_eq!(ahead.hear(2, "e"), Some("e"));
        assert!(ahead.reach(3, true).is_empty(), "its message is there already");
    }
}
