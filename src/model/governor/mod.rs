//! Shares an account among all runs: places for requests, requests and tokens a minute, and when to send nothing.
//!
//! First come, first served, for places and for sending. Whoever drops a future has left its queue and lost nothing
//! for anybody. When nothing waits, each step is one short lock. What is decided, and why, is in the pure parts, which
//! are told the time; here are the queues, and the waiting.
//!
//! Does not retry, and sends nothing itself.

mod account;
mod bucket;
mod gauges;
mod headers;
mod limiter;
mod pace;
mod permit;
mod rates;
mod state;
mod told;

#[cfg(test)]
mod tests;

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    sync::{self, Notify, watch},
    time::{Instant, sleep_until},
};

use gauges::Gauges;
use state::{Held, Sent, State};

pub use account::{Account, LatchReason, Latched};
pub use headers::{RateLimits, Window};
pub use permit::{Permit, Pledge};
pub use rates::{Concurrency, Rates};

/// How much is asked of one account, or of one model of it that has limits of its own, at once and in a minute.
#[derive(Debug)]
pub struct Governor {
    account: Arc<Account>,
    /// Unlimited in every way: nothing is counted, nothing locked.
    free: AtomicBool,
    has_rates: bool,
    inner: Mutex<Inner>,
    /// Whose turn it is to take a place, and to send: a fair lock is a queue that can be left at any time.
    admission: sync::Mutex<()>,
    sending: sync::Mutex<()>,
    /// Tells the head of either queue that something has changed.
    place: Notify,
    go: Notify,
    room: Arc<watch::Sender<u64>>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    gauges: Gauges,
    had_room: bool,
}

/// A governor at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Requests that may be out at once; none: any number.
    pub limit: Option<u32>,
    /// Places that are held, those in back-off included.
    pub in_flight: u32,
    /// Requests that are out at the server.
    pub out: u32,
    /// Turns that wait for a place.
    pub waiting: u32,
    /// Turns that have a place and wait until they may send.
    pub held_back: u32,
    /// Runs that were started and have not asked yet.
    pub pledged: u32,
    /// What may be sent in the minute to come, or until the reset that the server told; none: nobody limits it.
    pub requests_left: Option<u64>,
    pub tokens_left: Option<u64>,
    /// Times that the limit was cut.
    pub cuts: u64,
    /// When it was last cut.
    pub last_cut: Option<Instant>,
    /// Until when the limit is not cut again.
    pub horizon: Option<Instant>,
    pub latched: Option<Latched>,
}

impl Governor {
    pub fn new(account: Arc<Account>, rates: Rates) -> Arc<Self> {
        let state = State::new(&rates, Instant::now());
        let mut gauges = Gauges::new(&account);
        gauges.show(&state);
        let has_rates = rates.requests_per_minute.is_some() || rates.tokens_per_minute.is_some();
        let room = Arc::new(watch::Sender::new(0));
        account.tell(&room);
        Arc::new(Self {
            account,
            free: AtomicBool::new(!has_rates && rates.concurrency == Concurrency::Unlimited),
            has_rates,
            inner: Mutex::new(Inner { had_room: state.has_room(), state, gauges }),
            admission: sync::Mutex::default(),
            sending: sync::Mutex::default(),
            place: Notify::new(),
            go: Notify::new(),
            room,
        })
    }

    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Waits, first come first served, for a place, and for the account to be open. Dropping the future leaves the
    /// queue at once and loses nothing.
    pub async fn admit(self: &Arc<Self>) -> Permit {
        if self.is_free() {
            self.until_open().await;
            return Permit::new(self, false);
        }
        if self.account.latch().is_none() && self.look(|state, _| state.admitting == 0 && state.admit()) {
            return Permit::new(self, true);
        }
        let _waiting = Waiting::of(self, |state| &mut state.admitting);
        let _turn = self.admission.lock().await;
        loop {
            self.until_open().await;
            if self.look(|state, _| state.admit()) {
                return Permit::new(self, true);
            }
            self.place.notified().await;
        }
    }

    /// Whether a run that is started now would not have to wait for a place.
    pub fn has_room(&self) -> bool {
        self.account.latch().is_none() && (self.is_free() || self.look(|state, _| state.has_room()))
    }

    /// Counts a run that was started and has not asked yet, so that no more are started than there are places.
    pub fn pledge(self: &Arc<Self>) -> Pledge {
        Pledge::new((!self.is_free()).then_some(self))
    }

    /// Told whenever [`Self::has_room`] may have turned true; but not when a latch comes to its time, which is known.
    pub fn room(&self) -> watch::Receiver<u64> {
        self.room.subscribe()
    }

    /// Goes by another limit from now on. Whoever has a place keeps it.
    pub fn set_concurrency(&self, concurrency: Concurrency) {
        self.change(|state, _| {
            state.set(concurrency);
            let free = !self.has_rates && concurrency == Concurrency::Unlimited;
            self.free.store(free, Ordering::Release);
        });
    }

    pub fn view(&self) -> View {
        let latched = self.account.latch();
        self.look(|state, now| View {
            limit: Some(state.limiter.limit()).filter(|limit| *limit != u32::MAX),
            in_flight: state.held,
            out: state.out,
            waiting: state.admitting,
            held_back: state.sending,
            pledged: state.pledged,
            requests_left: state.requests_left(now),
            tokens_left: state.tokens_left(now),
            cuts: state.limiter.cuts(),
            last_cut: state.limiter.last_cut(),
            horizon: state.limiter.horizon(now),
            latched,
        })
    }

    fn is_free(&self) -> bool {
        self.free.load(Ordering::Acquire)
    }

    async fn send(&self, tokens: u64) -> Sent {
        if self.account.latch().is_none() {
            let sent = self.look(|state, now| (state.sending == 0).then(|| state.send(tokens, now)));
            if let Some(Ok(sent)) = sent {
                return sent;
            }
        }
        let _waiting = Waiting::of(self, |state| &mut state.sending);
        let _turn = self.sending.lock().await;
        loop {
            self.until_open().await;
            match self.look(|state, now| state.send(tokens, now)) {
                Ok(sent) => return sent,
                Err(Held::Full) => self.go.notified().await,
                Err(Held::Until(until)) => tokio::select! {
                    () = self.go.notified() => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    /// Waits while the account is shut.
    async fn until_open(&self) {
        if self.account.latch().is_none() {
            return;
        }
        let mut changes = self.account.changes();
        while let Some(latched) = self.account.latch() {
            let time = async {
                match latched.until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = time => {}
            }
        }
    }

    /// For what makes nobody's wait shorter.
    fn look<R>(&self, work: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut inner.state, Instant::now());
        inner.show();
        result
    }

    /// For what may: whoever is first looks again.
    fn change<R>(&self, work: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut inner.state, Instant::now());
        if inner.state.admitting > 0 && inner.state.has_place() {
            self.place.notify_one();
        }
        if inner.state.sending > 0 {
            self.go.notify_one();
        }
        if inner.show() {
            self.room.send_modify(|told| *told += 1);
        }
        result
    }
}

impl Inner {
    /// Shows what has changed; says whether there is room that there was not.
    fn show(&mut self) -> bool {
        self.gauges.show(&self.state);
        let has_room = self.state.has_room();
        let had_room = std::mem::replace(&mut self.had_room, has_room);
        has_room && !had_room
    }
}

/// Counts one that waits, for as long as it does.
struct Waiting<'a> {
    governor: &'a Governor,
    count: fn(&mut State) -> &mut u32,
}

impl<'a> Waiting<'a> {
    fn of(governor: &'a Governor, count: fn(&mut State) -> &mut u32) -> Self {
        governor.look(|state, _| *count(state) += 1);
        Self { governor, count }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.governor.change(|state, _| {
            let count = (self.count)(state);
            *count = count.saturating_sub(1);
        });
    }
}
