//! herder runs many LLM agent runs at once, in one process, under one supervisor.
//!
//! Each run is an actor that owns its conversation. Tools run in an executor that owns one mutation queue for all runs,
//! so edits never interleave. The supervisor admits, cancels, times out and restarts runs. Every fact is an event in
//! a log, and what a run is, is what its log says.
//!
//! # The flow, one direction
//!
//! ```text
//! cli, daemon --submit--> supervisor (admission, gates, time, restarts)
//!                           | spawns, casts
//!                           v
//!                         run: decide -> append -> evolve -> start what is newly owed
//!                           |              |
//!   model task <------------+              v
//!   executor   <------------+            store --position--> feed --> whoever reads: cli, results, the daemon's hub
//!      | report
//!      +------------------> run
//! ```
//!
//! - [`Run::decide`](domain::run::Run::decide) turns an input into facts or a refusal,
//!   [`evolve`](domain::run::Run::evolve) folds one fact in, [`owed`](domain::run::Run::owed) derives the outstanding
//!   work from state alone. Recovery is replay and then `owed`: the code of the live step, so the two cannot differ.
//! - Facts are appended before they are acted on or answered for. An append returns a
//!   [`Ticket`](store::Ticket) at once; the task that acts waits for the ticket, the handler never waits for the disk.
//! - An effect carries its turn, attempt and call, so a late or doubled report is recognised and refused.
//! - What owns state is an actor; what waits for slow work is a task that reports back by message. Mailboxes have no
//!   bound, so producers have: admission at the supervisor, permits at the executor.
//! - Readers follow the store by cursor. Text as it is spoken is not of record: it goes by a lossy broadcast
//!   ([`actor::Live`]), and never through a mailbox.
//!
//! # The floors
//!
//! A module names only floors to its left; siblings do not name each other. `tests/architecture.rs` fails otherwise.
//!
//! ```text
//! domain < clock, config, crash, telemetry < store, model, tool < actor < app < daemon < eval < cli < main
//! ```
//!
//! `app` alone names a concrete store, provider or tool set; the actors know [`EventStore`](store::EventStore),
//! [`ModelProvider`](model::ModelProvider) and [`Tool`](tool::Tool). `main` comes before everything else once: a process
//! that was started to guard a command does that and nothing more ([`tool::process::dispatch`]).
//!
//! # One invariant a module
//!
//! - [`domain`]: one list of inputs always gives one run. In [`domain::run`], a run that ended owes nothing; in
//!   [`domain::schedule`], no two jobs that conflict run at once, those that do keep the order of arrival, and an unrelated
//!   one waits for a permit at most; in [`domain::policy`], a command line is allowed only if everything that it would run
//!   is, and what is not surely read is not; in [`domain::budget`], what was admitted passes no cap; in
//!   [`domain::message`], every request is a valid conversation, each call answered once, in the next message.
//! - [`clock`]: the time that facts are stamped with comes from here alone, so a test can hold it still.
//! - [`config`]: every value in force has one source, and an error names its place; secrets are not shown.
//! - [`crash`]: nothing of it is in a build that is not for tests.
//! - [`telemetry`]: a metric's labels come from closed sets or are names of accounts, never an id, a path or a text.
//! - [`store`]: a run's events are numbered without a gap, and tickets become durable in the order they were handed out,
//!   over all runs. What a reader is given is durable.
//! - [`model`]: a stream that ends without [`Delta::Stop`](model::Delta::Stop) gave no answer; every wait ends when it is
//!   cancelled. In [`model::governor`], no more requests are out than the limit allows, it is cut once in a horizon whose
//!   end is fixed at the cut, and nothing is sent to an account that is shut.
//! - [`tool`]: nothing outside the workspace is touched by a path, and nothing of a command outlives it, or herder. What
//!   [`tool::process::confine`] cannot keep a command from as it is told to, it has not run.
//! - [`actor`]: every run that was submitted has one end, and nothing after it; a lock is kept until the work has really
//!   ended; a call that may have had its effect is never run again by itself, and what a person approved of is done as it was
//!   shown, once, or asked about again.
//! - [`app`]: results are derived from the journal, so the same command goes on wherever an earlier one stopped.
//! - [`daemon`]: what a client asks is answered once it is on disk, and the same again changes nothing; nothing that a client
//!   does, or fails to read, holds up a run or costs memory without bound.
//! - [`cli`]: stdout carries data alone, and the exit code says what kind of end it was.
//!
//! # Where this is not what one would expect
//!
//! - A run whose workspace or model is not to be had when it is to go on ends as `failed: setup`
//!   ([`Breakage::Setup`](domain::outcome::Breakage::Setup)): none of the other details would tell a person what to put right.
//! - An answer that was cut at its length limit, or declined, is `blocked` and not `done`, its text kept.
//! - Layers of configuration are merged here, over the spanned tables of the `toml` crate: the crates that merge layers
//!   keep no line numbers, and a mistake must be told with its line.
//! - Server-sent events are decoded here: an event's size is bounded, and a last event that lacks its blank line still
//!   counts, as some servers end.
//! - A key in the configuration and a key in a provider are two types, `Secret` in [`config`] and in [`model`]: the two
//!   stand on floors that share nothing above `domain`, which has no secrets to keep.
//! - Each command is guarded by this same program, started again. A guard that is a child subreaper sees every
//!   descendant end, and the kernel tells it when herder is gone; a thread of herder could do neither.
//! - The daemon stands above `app`, not below: to take on a task, a batch or a name it needs what the command line needs,
//!   and both get it there.
//! - A request has its place at the governor and its money reserved before it goes out. What it may cost is of record first,
//!   so a process that dies knows at its next start what it may owe, and charges nothing that had not gone out.
//! - A rate limit without a time to wait backs off for 8 s at most: places and rates are governed already, and a longer
//!   wait would leave them idle.
//! - Command lines are read by a reader of herder's own that refuses whatever it is not sure that bash reads the same way: the
//!   parsers that there are mend what they do not understand, and overflow their stack on hostile nesting.
//! - A run that waits for people only is parked like one that waits for its account: as data with the supervisor, without slot,
//!   lock or actor.
//! - A run that goes on from another holds that one's conversation in its first event, so its log alone says all that a model is
//!   shown.
//! - A run whose key is refused asks once more before the account shuts: a key may be on its way.
//! - No evaluations yet: their floor is kept free for them in `tests/architecture.rs`.

pub mod actor;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod crash;
pub mod daemon;
pub mod domain;
pub mod model;
pub mod store;
pub mod telemetry;
pub mod tool;
