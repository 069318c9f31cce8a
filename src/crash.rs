//! Places where a test has this process killed: as by `kill -9`, at a place of its choice.
//!
//! There is one before and after everything that changes the log or the world. `FAILPOINTS` says which of them kills, and
//! at which time it is reached: `append.before=2*off->return` at the third. In a build without the feature `failpoints` of
//! the crate `fail`, which is every build but that of the tests, nothing of this is left, and the variable means nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use fail::{FailScenario, fail_point};
use rustix::process::{Signal, getpid, kill_process};

use crate::domain::event::Fact;

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident => $text:literal),+ $(,)?) => {
        /// A place that is named. Beside these there are two for each kind of fact: see [`facts`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Point {
            $($(#[$doc])* $name),+
        }

        impl Point {
            /// All of them, by their names.
            pub const ALL: &[&str] = &[$($text),+];

            /// Its name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text),+
                }
            }
        }
    };
}

points! {
    /// A run has decided and not handed over.
    BeforeAppend => "append.before",
    /// A run has handed over and not acted.
    AfterAppend => "append.after",
    /// A batch and its tasks are about to be put on record.
    BeforeBatch => "batch.before",
    /// They are, and nobody has been told.
    AfterBatch => "batch.after",
    /// A request is about to go out.
    BeforeRequest => "request.before",
    /// Its answer has come to its end, and nobody has been told.
    AfterRequest => "request.after",
    /// A call may take effect by the log, and has not begun.
    BeforeCall => "call.before",
    /// It has taken effect, and nobody has been told.
    AfterCall => "call.after",
    /// The new content of a file is in a temporary one.
    TempWritten => "temp.written",
    /// The temporary file is about to take the file's place.
    BeforeRename => "rename.before",
    /// It has, and the folder may not know for good.
    AfterRename => "rename.after",
    /// A guard runs that has not been told what to run.
    GuardStarted => "guard.started",
    /// It has been told; the command may run.
    CommandLaunched => "command.launched",
    /// The command runs, and its processes are not of record.
    CommandStarted => "command.started",
    /// Nothing of the command is left, and nobody has been told.
    CommandEnded => "command.ended",
    /// A run's end is of record, and its line is not in the results.
    BeforeLine => "line.before",
    /// Half of the line is.
    HalfOfLine => "line.half",
    /// All of it is.
    AfterLine => "line.after",
    /// The results are made anew beside the old ones.
    BeforeResults => "results.before",
    /// They are in their place.
    AfterResults => "results.after",
    /// A submission is of record and not answered.
    Submitted => "submission.recorded",
    /// A run's workspace is on record, and nothing of it is there.
    BeforeWorkspace => "workspace.before",
    /// It is there, and not on record as made.
    AfterWorkspace => "workspace.after",
    /// Its run has ended; what was changed is in no patch.
    BeforePatch => "patch.before",
    /// The patch is in its place, and the commit not made.
    BeforeCommit => "commit.before",
    /// Both are there, and not on record.
    AfterCommit => "commit.after",
    /// They are on record, and the workspace is still there.
    AfterPatch => "patch.after",
    /// A workspace is about to be removed.
    BeforeRemoval => "removal.before",
    /// It is gone, and its branch and what is known of it are not.
    AfterRemoval => "removal.after",
    /// What an earlier process left running is about to be ended.
    BeforeLeftovers => "leftovers.before",
    /// It is, and the log does not say that the run goes on.
    AfterLeftovers => "leftovers.after",
    /// Old runs are about to be taken off the record.
    BeforePrune => "prune.before",
    /// They are, and what they left lies there still.
    AfterForget => "prune.forgotten",
    /// That is gone too, and nobody has been told.
    AfterPrune => "prune.after",
}

/// Before or after facts are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// They are not.
    Before,
    /// They are, and nobody has been told.
    After,
}

impl Edge {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// Whether the variable says anything: without it the places cost nothing, in benches neither.
static IS_ARMED: AtomicBool = AtomicBool::new(false);

/// Has `FAILPOINTS` mean something for as long as the result is kept.
#[must_use = "nothing kills once this is dropped"]
pub fn arm() -> Option<impl Sized> {
    let is_armed = fail::has_failpoints() && std::env::var_os("FAILPOINTS").is_some();
    IS_ARMED.store(is_armed, Ordering::Relaxed);
    is_armed.then(FailScenario::setup)
}

fn is_armed() -> bool {
    fail::has_failpoints() && IS_ARMED.load(Ordering::Relaxed)
}

/// Ends the process here, if a test says so.
pub fn point(point: Point) {
    point_after(point, || ());
}

/// Ends the process here, if a test says so, but first does this by halves.
pub fn point_after(point: Point, by_halves: impl FnOnce()) {
    if is_armed() {
        reach(point.as_str(), by_halves);
    }
}

/// The places of facts: `message.before`, `message.after` and so on, by their kinds.
pub fn facts(facts: &[Fact], edge: Edge) {
    if is_armed() {
        for fact in facts {
            reach(&format!("{}.{}", fact.event.kind(), edge.as_str()), || ());
        }
    }
}

fn reach(name: &str, first: impl FnOnce()) {
    let kill = |_: Option<String>| {
        first();
        // Nobody outlives that: it is not even returned from.
        let _ = kill_process(getpid(), Signal::KILL);
    };
    // Where there are no tests, the macro is empty.
    let _ = (name, &kill);
    fail_point!(name, kill);
}
