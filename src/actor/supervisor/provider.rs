//! What the providers' side keeps from runs without a slot: an account that is shut, a time that has not come, and
//! models that have no place free.
//!
//! A run that waits for any of these has no slot and no actor. It goes on by itself: the account tells when it opens or
//! has room, and a time is waited for.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use ractor::ActorRef;
use tokio::time::{Instant, sleep_until};

use super::{
    live::LiveRun,
    message::{Admitted, RootMsg, Wait},
    notice::{Notice, Notices},
    root::{Tree, later},
};
use crate::{
    actor::run::fallback_of,
    domain::{event::ParkReason, retry::PATIENCE, run::Run, time::Timestamp},
    model::governor::{Account, Governor, LatchReason, Latched, Pledge},
};

/// When a run is looked at again that has been looked at in vain.
const AGAIN: Duration = Duration::from_secs(1);

/// Why nothing that is left to do can be done until a person does something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// An account is shut.
    Account(Shut),
    /// People are to decide about calls.
    Approval,
}

/// An account that is shut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shut {
    /// Which one.
    pub account: Arc<str>,
    /// Why.
    pub latched: Latched,
}

/// The accounts and governors that tell the root of their changes.
#[derive(Default)]
pub(super) struct Attended {
    accounts: Known<Account>,
    governors: Known<Governor>,
}

/// Things that are known for as long as somebody has them. There are few.
struct Known<T>(Vec<Weak<T>>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Known<T> {
    /// Says whether it is new.
    fn insert(&mut self, thing: &Arc<T>) -> bool {
        let is_new = !self.0.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(thing)));
        if is_new {
            // What is known keeps its place in memory to itself, also when nobody has it any more.
            self.0.retain(|known| known.strong_count() > 0);
            self.0.push(Arc::downgrade(thing));
        }
        is_new
    }
}

impl From<LatchReason> for ParkReason {
    fn from(reason: LatchReason) -> Self {
        match reason {
            LatchReason::RateLimit => Self::RateLimit,
            LatchReason::Quota => Self::Quota,
            LatchReason::Auth => Self::Auth,
        }
    }
}

impl Tree {
    /// Whether a run that has no slot is kept from getting one: by a person, by what people are to decide, by its account,
    /// or by the time.
    pub(super) fn is_kept(&self, run: &Run) -> bool {
        self.gates.keep(run)
            || waits_for_people(run)
            || self.early(run).is_some()
            || self.latch_of(run).is_some()
    }

    /// How long the run waits for its next request to be due without a slot, if it does.
    fn early(&self, run: &Run) -> Option<Duration> {
        let wait = run.not_before()?.since(self.services.clock.now());
        let patience = if run.parked() == Some(ParkReason::RateLimit) { Duration::ZERO } else { PATIENCE };
        Some(wait).filter(|wait| *wait > patience && !self.is_opened(run))
    }

    /// Whether the run waited for its account, and a person has opened that.
    fn is_opened(&self, run: &Run) -> bool {
        let waited = matches!(run.parked(), Some(ParkReason::Quota | ParkReason::Auth));
        let model = run.model().filter(|_| waited).and_then(|name| self.services.models.get(name));
        model.is_some_and(|model| model.governor.account().is_opened())
    }

    /// What shuts the account that the run would ask next. One that can go on with another model is not kept by it.
    pub(super) fn latch_of(&self, run: &Run) -> Option<Shut> {
        let model = self.services.models.get(run.model()?)?;
        let account = model.governor.account();
        let latched = account.latch().filter(|_| fallback_of(&self.services, run).is_none())?;
        Some(Shut { account: account.name().clone(), latched })
    }

    /// Whether the account that a live run asks is shut, and it can ask no other.
    pub(super) fn shuts(&self, live: &LiveRun) -> bool {
        let model = live.model.as_ref().filter(|_| !live.falls_back);
        let model = model.and_then(|name| self.services.models.get(name));
        model.is_some_and(|model| model.governor.account().latch().is_some())
    }

    /// A live run asks another model from now on.
    pub(super) fn switched(&mut self, run: &Run) {
        self.attend(run);
        let falls_back = fallback_of(&self.services, run).is_some();
        if let Some(live) = self.live.get_mut(&run.id()) {
            live.model = run.model().cloned();
            live.falls_back = falls_back;
        }
        // It may be shut already.
        self.heed();
    }

    /// Hears of what changes at the model that a run asks, from the first such run on.
    pub(super) fn attend(&mut self, run: &Run) {
        let Some(model) = run.model().and_then(|name| self.services.models.get(name)) else { return };
        let fallbacks = model.fallbacks.iter().filter_map(|name| self.services.models.get(name));
        for model in std::iter::once(model.clone()).chain(fallbacks) {
            let account = model.governor.account();
            if self.attended.accounts.insert(account) {
                watch_latch(self.me.clone(), account.clone(), self.notices.clone());
            }
        }
        let governor = &model.governor;
        if self.follows_models && self.attended.governors.insert(governor) {
            watch_room(self.me.clone(), governor.clone());
        }
    }

    /// Looks at a run again once its time has come.
    pub(super) fn look_later(&self, run: &Run) {
        let expires = run.open_approvals().filter_map(|asked| asked.expires_at).min();
        let expires = expires.map(|at| at.since(self.services.clock.now())).map(|wait| {
            // The log may not take it that the time is up.
            if wait.is_zero() { AGAIN } else { wait }
        });
        if let Some(wait) = self.early(run).into_iter().chain(expires).min() {
            later(&self.me, wait, RootMsg::Due(run.id()));
        }
    }

    /// What the runs that are held by no person wait for.
    pub(super) fn waits(&self) -> Vec<Wait> {
        // Many runs ask few models.
        let mut latches: HashMap<&str, Option<Latched>> = HashMap::new();
        let mut waits: Vec<Wait> = Vec::new();
        for Admitted { run, .. } in self.held.iter().filter(|held| !self.gates.keep(&held.run)) {
            let batch = run.spec().and_then(|spec| spec.batch);
            let name = run.model().map(|name| &**name).unwrap_or_default();
            let latched =
                latches.entry(name).or_insert_with(|| self.latch_of(run).map(|blocked| blocked.latched));
            let (reason, until) = match latched {
                _ if waits_for_people(run) => {
                    (ParkReason::Approval, run.open_approvals().filter_map(|asked| asked.expires_at).min())
                }
                Some(Latched { reason, until, .. }) => ((*reason).into(), until.map(|until| self.at(until))),
                None => (ParkReason::RateLimit, run.not_before()),
            };
            match waits.iter_mut().find(|wait| (wait.batch, wait.reason) == (batch, reason)) {
                Some(wait) => {
                    wait.runs += 1;
                    wait.until = wait.until.into_iter().chain(until).min();
                }
                None => waits.push(Wait { batch, reason, until, runs: 1 }),
            }
        }
        waits
    }

    /// The time of day of a moment to come.
    fn at(&self, moment: Instant) -> Timestamp {
        self.services.clock.now().after(moment.saturating_duration_since(Instant::now()))
    }

    /// Has a run that starts count as one that is about to ask, where that matters.
    pub(super) fn pledge(&self, run: &Run) -> Option<Pledge> {
        let model = run.model().filter(|_| self.follows_models)?;
        Some(self.services.models.get(model)?.governor.pledge())
    }

    /// Tells whoever waits for it whether everything that is left to do waits for a person to open an account.
    pub(super) fn tell_blocked(&self) {
        let idle = self.live.is_empty()
            && self.closing.is_empty()
            && self.queue.is_empty()
            && self.arriving.is_empty();
        let blocked = idle.then(|| self.all_blocked()).flatten();
        self.blocked.send_if_modified(|told| {
            let changes = *told != blocked;
            *told = blocked;
            changes
        });
    }

    fn all_blocked(&self) -> Option<Blocked> {
        let mut first = None;
        for held in self.held.iter() {
            let blocked = if waits_for_people(&held.run) {
                let expires = held.run.open_approvals().any(|asked| asked.expires_at.is_some());
                (!expires).then_some(Blocked::Approval)?
            } else {
                Blocked::Account(self.latch_of(&held.run).filter(|shut| shut.latched.until.is_none())?)
            };
            first.get_or_insert(blocked);
        }
        first
    }
}

/// Whether a run gave its slot up until people decide. One whose process died before it could has yet to.
fn waits_for_people(run: &Run) -> bool {
    run.parked().is_some() && run.waits_for_people()
}

/// Tells the root whenever the account shuts or opens, by itself too, and everybody of each reason once.
fn watch_latch(root: ActorRef<RootMsg>, account: Arc<Account>, notices: Notices) {
    let mut changes = account.changes();
    let account = Arc::downgrade(&account);
    tokio::spawn(async move {
        let mut told = None;
        loop {
            let latched = changes.borrow_and_update().clone();
            let reason = latched.as_ref().map(|latched| latched.reason);
            // Each request that was out as it shut may shut it for a little longer.
            if std::mem::replace(&mut told, reason) != reason
                && let Some(account) = account.upgrade()
            {
                tell(&account, latched.as_ref(), &notices);
            }
            let until = latched.and_then(|latched| latched.until);
            let opens = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { break },
                () = opens => {
                    let Some(account) = account.upgrade() else { break };
                    // Whoever looks at it has it open.
                    let _ = account.latch();
                }
            }
            if root.cast(RootMsg::AccountChanged).is_err() {
                return;
            }
        }
        // Nobody has the account any more: whoever waited for it asks another one.
        let _ = root.cast(RootMsg::AccountChanged);
    });
}

fn tell(account: &Account, latched: Option<&Latched>, notices: &Notices) {
    match latched {
        Some(latched @ Latched { reason, until, said }) => {
            let seconds = until.map(|until| until.saturating_duration_since(Instant::now()).as_secs());
            tracing::warn!(account = %account.name(), %reason, said = %said, opens_in_s = seconds, "account is shut");
            notices.tell(Notice::AccountShut(account.name().clone(), latched.clone()));
        }
        None => tracing::info!(account = %account.name(), "account is open"),
    }
}

/// Tells the root whenever there may be room for another run.
fn watch_room(root: ActorRef<RootMsg>, governor: Arc<Governor>) {
    let mut room = governor.room();
    drop(governor);
    tokio::spawn(async move {
        while room.changed().await.is_ok() {
            if root.cast(RootMsg::Room).is_err() {
                return;
            }
        }
    });
}
