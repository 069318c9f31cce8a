//! An account at a provider, and the latch that shuts it when asking on would only be refused.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::watch, time::Instant};

use crate::telemetry::metric;

/// Rejections of the key, without a success between, that shut the latch. A lone one happens while keys are changed.
const REJECTIONS: u32 = 2;

/// One account at a provider: what all its models share.
#[derive(Debug)]
pub struct Account {
    name: Arc<str>,
    /// Whether what it refuses one run says nothing of the others, as with the scripted model.
    is_lone: bool,
    /// Whether there is a latch at all, or a rejection: what can be seen without the lock.
    noted: AtomicBool,
    inner: Mutex<Inner>,
    changes: watch::Sender<Option<Latched>>,
}

#[derive(Debug, Default)]
struct Inner {
    latched: Option<Latched>,
    rejections: u32,
    /// A person has opened it since it last shut.
    is_opened: bool,
    /// Who wants to know that there may be room again.
    rooms: Vec<Weak<watch::Sender<u64>>>,
}

/// Why nothing is sent to an account, until when, and what the server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latched {
    pub reason: LatchReason,
    /// When it opens by itself; none: by hand alone.
    pub until: Option<Instant>,
    pub said: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchReason {
    /// The server wants to be left alone for long.
    RateLimit,
    /// Money or quota is used up.
    Quota,
    /// The key is refused.
    Auth,
}

impl LatchReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimit => "rate_limit",
            Self::Quota => "quota",
            Self::Auth => "auth",
        }
    }
}

impl fmt::Display for LatchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Latched {
    fn holds(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    fn outlasts(&self, other: &Self) -> bool {
        match (self.until, other.until) {
            (None, Some(_)) => true,
            (Some(own), Some(other)) => own > other,
            (_, None) => false,
        }
    }
}

impl Account {
    /// An open one.
    pub fn new(name: impl Into<Arc<str>>) -> Arc<Self> {
        Self::with(name.into(), false)
    }

    /// One that never shuts: what is refused to one run says nothing of the others, as with the scripted model.
    pub fn lone(name: impl Into<Arc<str>>) -> Arc<Self> {
        Self::with(name.into(), true)
    }

    fn with(name: Arc<str>, is_lone: bool) -> Arc<Self> {
        Arc::new(Self {
            name,
            is_lone,
            noted: AtomicBool::new(false),
            inner: Mutex::default(),
            changes: watch::Sender::new(None),
        })
    }

    /// Whether it never shuts.
    pub const fn is_lone(&self) -> bool {
        self.is_lone
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Why nothing is sent to it now, if that is so. One that has come to its time is open.
    pub fn latch(&self) -> Option<Latched> {
        if !self.noted.load(Ordering::Acquire) {
            return None;
        }
        let now = Instant::now();
        let mut inner = self.lock();
        if inner.latched.as_ref().is_some_and(|latched| !latched.holds(now)) {
            self.set(&mut inner, None);
        }
        inner.latched.clone()
    }

    /// Shuts it; says whether it was open before. A latch that is there is replaced by one that lasts longer.
    pub fn shut(&self, latched: Latched) -> bool {
        if self.is_lone {
            return false;
        }
        let now = Instant::now();
        let mut inner = self.lock();
        let held = inner.latched.as_ref().filter(|held| held.holds(now));
        let was_open = held.is_none();
        if held.is_none_or(|held| latched.outlasts(held)) {
            self.set(&mut inner, Some(latched));
        }
        was_open
    }

    /// Opens it by hand; says whether it was shut.
    pub fn open(&self) -> bool {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.rejections = 0;
        let was_shut = inner.latched.as_ref().is_some_and(|latched| latched.holds(now));
        self.set(&mut inner, None);
        if !std::mem::replace(&mut inner.is_opened, true) && !was_shut {
            // It may have been shut in an earlier process, whose runs still wait.
            self.changes.send_replace(None);
        }
        was_shut
    }

    /// Whether a person has opened it since it last shut: then what the server said of times holds no more.
    pub fn is_opened(&self) -> bool {
        self.lock().is_opened
    }

    /// The server refused the key. The second refusal in a row shuts the latch until a person opens it; says whether
    /// it is shut for that now.
    pub fn rejected(&self, said: &str) -> bool {
        if self.is_lone {
            return false;
        }
        let mut inner = self.lock();
        inner.rejections = inner.rejections.saturating_add(1);
        self.noted.store(true, Ordering::Release);
        if inner.rejections < REJECTIONS {
            return false;
        }
        if inner.latched.as_ref().is_none_or(|latched| latched.reason != LatchReason::Auth) {
            let latched = Latched { reason: LatchReason::Auth, until: None, said: said.into() };
            self.set(&mut inner, Some(latched));
        }
        true
    }

    /// The latch as it changes. That its time has come is told when somebody next looks: who waits for it sleeps
    /// until then.
    pub fn changes(&self) -> watch::Receiver<Option<Latched>> {
        self.changes.subscribe()
    }

    /// A request was answered, so the key is good.
    pub(super) fn accepted(&self) {
        if self.noted.load(Ordering::Acquire) {
            let mut inner = self.lock();
            inner.rejections = 0;
            self.noted.store(inner.latched.is_some(), Ordering::Release);
        }
    }

    /// Has `room` told when the latch opens.
    pub(super) fn tell(&self, room: &Arc<watch::Sender<u64>>) {
        let mut inner = self.lock();
        inner.rooms.retain(|room| room.strong_count() > 0);
        inner.rooms.push(Arc::downgrade(room));
    }

    fn set(&self, inner: &mut Inner, latched: Option<Latched>) {
        self.noted.store(latched.is_some() || inner.rejections > 0, Ordering::Release);
        if inner.latched == latched {
            return;
        }
        let shut = if latched.is_some() { 1.0 } else { 0.0 };
        metrics::gauge!(metric::ACCOUNT_LATCHED, "account" => Arc::clone(&self.name)).set(shut);
        inner.latched.clone_from(&latched);
        let open = latched.is_none();
        inner.is_opened &= open;
        self.changes.send_replace(latched);
        if open {
            for room in inner.rooms.iter().filter_map(Weak::upgrade) {
                room.send_modify(|told| *told += 1);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
