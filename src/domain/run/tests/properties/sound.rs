//! What holds for a run and its log, whatever led there.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::domain::{event, id::Pos};

impl World {
    /// What holds after every append.
    pub(super) fn assert_state_is_sound(&self) {
        let Play { run, log, .. } = &self.play;
        assert_eq!(run.seq().get(), log.len() as u64);
        match run.phase() {
            Phase::Between => panic!("an append left the run between two turns"),
            Phase::Acting(calls) => assert!(!calls.iter().all(OpenCall::is_answered)),
            Phase::New | Phase::Queued | Phase::Thinking { .. } | Phase::Ended(_) => {
                assert_eq!(validate(run.history()), Ok(()));
            }
        }
        if matches!(run.phase(), Phase::Thinking { .. }) {
            for budget in [None, Some(0), Some(7), Some(25)] {
                let shown = run.projection(budget);
                assert_eq!(validate(&shown.messages), Ok(()));
                assert_eq!(shown.bytes, shown.messages.iter().map(Message::bytes).sum::<usize>());
            }
        }
        let waits = *run.phase() == Phase::Queued || run.parked().is_some() || run.waits_for_people();
        assert_eq!(run.outcome().is_some(), run.owed().is_empty() && !waits);
        assert_eq!(run.history_bytes(), run.history().iter().map(Message::bytes).sum::<usize>());
    }

    /// What holds for a log from end to end.
    pub(super) fn assert_log_is_sound(&self) {
        self.assert_only_what_is_allowed_starts();
        let log = &self.play.log;
        assert!(log.is_sorted_by_key(|fact| fact.at), "time went back");
        assert!(log.is_sorted_by_key(|fact| fact.turn), "a turn came back");
        let mut asked = BTreeSet::new();
        let mut answers = BTreeMap::new();
        let mut waiting: Vec<QueuedInput> = Vec::new();
        let mut used = Usage::default();
        let mut in_turn = 0;
        let mut paused = false;
        let mut parked = false;
        let mut limits = Limits::default();
        let mut models = BTreeSet::new();
        for (index, fact) in log.iter().enumerate() {
            assert_eq!(index == 0, matches!(fact.event, Event::Submitted(_)));
            assert!(!parked || may_come_while_parked(&fact.event), "{} while parked", fact.event.kind());
            match &fact.event {
                Event::Message(reply) => {
                    used += reply.usage;
                    for call in &reply.calls {
                        assert!(asked.insert(call.id.clone()), "{} is asked for twice", call.id);
                    }
                }
                Event::CallStarted(started) => assert!(!answers.contains_key(&started.call)),
                Event::Result(result) => {
                    in_turn += 1;
                    assert!(asked.contains(&result.call));
                    assert_eq!(result.ok, result.failure.is_none());
                    assert_eq!(
                        answers.insert(result.call.clone(), result.ok),
                        None,
                        "a call is answered twice"
                    );
                }
                Event::TurnEnd(end) => assert_eq!(end.calls, std::mem::take(&mut in_turn)),
                Event::InputQueued(input) => waiting.push(input.clone()),
                Event::InputClaimed(claimed) => {
                    let index = waiting.iter().position(|input| input.input == claimed.input).unwrap();
                    let input = waiting.remove(index);
                    assert!(waiting[..index].iter().all(|older| older.when != input.when), "out of order");
                }
                Event::RunEnd(end) => {
                    assert_eq!(index + 1, log.len(), "something follows the end");
                    assert_eq!((end.turns, end.usage), (fact.turn, used));
                    assert_eq!((end.calls as usize, asked.len()), (answers.len(), answers.len()));
                    assert!(end.active_us <= end.duration_us);
                    let later = fact.at.after(Duration::from_secs(1));
                    assert_eq!(self.play.run.active(later), Duration::from_micros(end.active_us));
                    assert_eq!(self.play.run.wall(later), Duration::from_micros(end.duration_us));
                }
                Event::Paused(_) => assert!(!std::mem::replace(&mut paused, true), "paused twice"),
                Event::Resumed(_) => {
                    assert!(std::mem::take(&mut paused), "resumed without having been paused")
                }
                Event::Parked(_) => parked = true,
                Event::Unparked(_) => {
                    assert!(std::mem::take(&mut parked) && !paused, "unparked while paused, or not parked");
                }
                Event::Submitted(spec) => limits = spec.limits,
                Event::LimitsSet(set) => limits = set.or(limits),
                Event::TurnStart(_) => {
                    assert!(fact.turn <= limits.turns(), "a turn past the limit");
                    // Of a log that was cut off before, the turn has no end of its own.
                    in_turn = 0;
                }
                Event::RunStart(start) => assert!(models.insert(start.model.clone())),
                Event::ModelSwitched(switched) => {
                    used += switched.usage.unwrap_or_default();
                    assert!(models.contains(&switched.from));
                    assert!(models.insert(switched.to.clone()), "a model is asked again");
                }
                Event::ModelRetry(retry) => used += retry.usage.unwrap_or_default(),
                Event::RequestLost(lost) => used += lost.usage,
                Event::RequestSent(_)
                | Event::Decision(_)
                | Event::Correction(_)
                | Event::CancelRequested(_)
                | Event::ApprovalRequested(_)
                | Event::ApprovalResolved(_)
                | Event::CommandGroup(_)
                | Event::Interrupted(_)
                | Event::Restart(_) => {}
            }
        }
    }

    /// Reads every append back from its stored form and folds it in.
    pub(super) fn assert_replay_equals_live(&self) {
        let mut replayed = Run::new(run_id());
        for append in &self.appends {
            let body = event::encode(append).unwrap();
            for envelope in event::decode(&body, run_id(), Pos::new(1), replayed.next_seq()).unwrap() {
                assert_eq!(envelope.seq, replayed.next_seq());
                replayed.evolve(&envelope.fact);
            }
        }
        assert_eq!(replayed, self.play.run);
    }
}

const fn may_come_while_parked(event: &Event) -> bool {
    match event {
        Event::InputQueued(_)
        | Event::LimitsSet(_)
        | Event::Paused(_)
        | Event::Resumed(_)
        | Event::Unparked(_)
        | Event::ApprovalResolved(_)
        | Event::Result(_)
        | Event::CancelRequested(_)
        | Event::TurnEnd(_)
        | Event::Interrupted(_)
        | Event::Restart(_)
        | Event::RunEnd(_) => true,
        Event::Submitted(_)
        | Event::RunStart(_)
        | Event::TurnStart(_)
        | Event::Message(_)
        | Event::Decision(_)
        | Event::ApprovalRequested(_)
        | Event::CallStarted(_)
        | Event::CommandGroup(_)
        | Event::InputClaimed(_)
        | Event::ModelRetry(_)
        | Event::RequestSent(_)
        | Event::RequestLost(_)
        | Event::ModelSwitched(_)
        | Event::Correction(_)
        | Event::Parked(_) => false,
    }
}
