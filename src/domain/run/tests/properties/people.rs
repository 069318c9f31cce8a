//! People who decide about calls, in time or late, once or again, and calls that are something else by then.

use super::*;
use crate::domain::{
    event::{Grant, Resolution},
    run::{Answer, Ask},
};

/// Something about a call that a person decides about.
#[derive(Clone, Debug)]
pub(super) enum Person {
    Resolve { which: usize, answer: Answer, command: &'static str },
    Expire,
    AskAgain { which: usize, later: bool },
    Park,
    Group { which: usize },
}

/// What a person is asked about a call: a change of which sort, and whether time runs out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) changes: bool,
    pub(super) expires_ms: Option<i64>,
}

pub(super) fn asked() -> impl Strategy<Value = Asked> {
    let expires_ms = prop::option::weighted(0.3, 0..20_000_i64);
    (any::<bool>(), expires_ms).prop_map(|(changes, expires_ms)| Asked { changes, expires_ms })
}

impl Asked {
    pub(super) fn ask(self) -> Ask {
        let expires_at = self.expires_ms.map(|ms| Timestamp::from_micros(ms * 1_000));
        Ask { change: Some(change()).filter(|_| self.changes), preview: Some("this".into()), expires_at }
    }
}

pub(super) fn person() -> impl Strategy<Value = Person> {
    let grant = Grant { tool: "bash".into(), pattern: "ls *".into() };
    let answer = prop::sample::select(vec![
        Answer::Approve(None),
        Answer::Approve(None),
        Answer::Approve(Some(grant)),
        Answer::Reject(None),
        Answer::Reject(Some("no".into())),
    ]);
    let command = prop::sample::select(vec!["a", "b"]);
    prop_oneof![
        6 => (any::<usize>(), answer, command)
            .prop_map(|(which, answer, command)| Person::Resolve { which, answer, command }),
        1 => Just(Person::Expire),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, later)| Person::AskAgain { which, later }),
        2 => Just(Person::Park),
        2 => any::<usize>().prop_map(|which| Person::Group { which }),
    ]
}

impl World {
    pub(super) fn person(&self, person: Person) -> Option<Input> {
        Some(match person {
            Person::Resolve { which, answer, command } => {
                let asked = self.play.run.approvals();
                let approval = asked.get(which.checked_rem(asked.len())?)?.request.approval;
                Input::Resolve { approval, answer, command: command.into(), by: None }
            }
            Person::Expire => Input::Expire,
            Person::AskAgain { which, later } => {
                let open = self.open(which, |open| matches!(open.stage, Stage::Judged(_)))?;
                let asked = Asked { changes: later, expires_ms: None };
                let (access, rule) = (Vec::new(), "another rule".to_owned());
                Input::AskAgain { call: open.call.id.clone(), access, rule, ask: asked.ask() }
            }
            Person::Park => Input::Park(ParkReason::Approval),
            Person::Group { which } => {
                let call = self.open(which, OpenCall::is_started)?.call.id.clone();
                Input::Grouped(CommandGroup { call, pid: 1, started: 2, boot: "boot".into() })
            }
        })
    }

    /// Decides about what is asked first: approves of every other.
    pub(super) fn decide_one(&mut self) -> bool {
        let Some(approval) = self.play.run.open_approvals().next().map(|asked| asked.approval) else {
            return false;
        };
        let answer = if approval % 2 == 0 { Answer::Reject(None) } else { Answer::Approve(None) };
        // It may be too late for an answer.
        self.tell(Input::Expire);
        self.tell(Input::Resolve { approval, answer, command: "c".into(), by: None });
        true
    }

    /// What holds for approvals and what they allow, from end to end of a log.
    pub(super) fn assert_only_what_is_allowed_starts(&self) {
        let mut allowed: BTreeMap<&CallId, Allowed> = BTreeMap::new();
        let mut approvals: Vec<(&CallId, Option<Resolution>)> = Vec::new();
        for fact in &self.play.log {
            match &fact.event {
                Event::Decision(decision) => {
                    let known = allowed.entry(&decision.call).or_insert(Allowed {
                        by_policy: decision.verdict == Verdict::Allow,
                        effect: decision.effect,
                        ..Allowed::default()
                    });
                    // Said again, it says that the call was not made.
                    known.started = false;
                }
                Event::ApprovalRequested(request) => {
                    approvals.push((&request.call, None));
                    assert_eq!(approvals.len(), request.approval as usize);
                    let call = allowed.get_mut(&request.call).unwrap();
                    (call.by_policy, call.approval) = (false, Some(approvals.len() - 1));
                }
                Event::ApprovalResolved(resolved) => {
                    let (call, before) = &mut approvals[resolved.approval as usize - 1];
                    assert_eq!(**call, resolved.call);
                    let is_taken_back = *before == Some(Resolution::Approved)
                        && resolved.resolution == Resolution::Superseded;
                    assert!(
                        before.is_none() || is_taken_back,
                        "{before:?} and then {:?}",
                        resolved.resolution
                    );
                    *before = Some(resolved.resolution);
                }
                Event::CallStarted(started) => {
                    let call = allowed.get_mut(&started.call).unwrap();
                    let approved =
                        call.approval.is_some_and(|number| approvals[number].1 == Some(Resolution::Approved));
                    assert!(call.by_policy || approved, "{} starts, and nobody allowed it", started.call);
                    assert!(!std::mem::replace(&mut call.started, true), "{} starts twice", started.call);
                    call.can_tell = started.change.is_some();
                }
                Event::Restart(_) => {
                    for call in allowed.values_mut() {
                        let repeats = call.effect == EffectClass::Read || call.can_tell;
                        call.started &= !repeats;
                    }
                }
                Event::Submitted(_)
                | Event::RunStart(_)
                | Event::TurnStart(_)
                | Event::Message(_)
                | Event::CommandGroup(_)
                | Event::Result(_)
                | Event::TurnEnd(_)
                | Event::InputQueued(_)
                | Event::InputClaimed(_)
                | Event::ModelRetry(_)
                | Event::RequestSent(_)
                | Event::RequestLost(_)
                | Event::ModelSwitched(_)
                | Event::Correction(_)
                | Event::LimitsSet(_)
                | Event::CancelRequested(_)
                | Event::Paused(_)
                | Event::Resumed(_)
                | Event::Parked(_)
                | Event::Unparked(_)
                | Event::Interrupted(_)
                | Event::RunEnd(_) => {}
            }
        }
        let ended = self.play.run.outcome().is_some();
        assert!(!ended || approvals.iter().all(|(_, resolved)| resolved.is_some()), "an approval stays open");
    }
}

/// What is known of a call that was judged.
#[derive(Clone, Copy)]
struct Allowed {
    by_policy: bool,
    effect: EffectClass,
    /// The last that it was asked about.
    approval: Option<usize>,
    started: bool,
    /// Whether the file tells if it took effect.
    can_tell: bool,
}

impl Default for Allowed {
    fn default() -> Self {
        Self { by_policy: false, effect: EffectClass::Read, approval: None, started: false, can_tell: false }
    }
}
