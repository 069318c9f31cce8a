//! What every store promises, as tests that each one must pass.

mod beside;
mod feeds;
mod forgetting;
mod log;
mod runs;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    Asked, AuditFilter, AuditRecord, BatchRecord, EventStore, RunCounts, RunFilter, RunRecord, StoreError,
    TaskRecord, Ticket,
    feed::Feed,
    memory::MemoryStore,
    samples::{end, every_kind, run_end, run_id, submitted, text, texts, turn},
    sqlite::{Options, SqliteStore},
};
use crate::domain::{
    event::{Envelope, Event, Fact, RunEnd},
    id::{BatchId, Pos, RunId, Seq},
    outcome::{Breakage, FaultClass, Outcome},
    task::Submission,
    time::Timestamp,
};

const DEADLINE: Duration = Duration::from_secs(60);

/// A store under test, and the folder that it lives in.
struct Subject {
    store: Arc<dyn EventStore>,
    close: Box<dyn Fn()>,
    _folder: Option<tempfile::TempDir>,
}

fn memory() -> Subject {
    let store = Arc::new(MemoryStore::default());
    let closing = Arc::clone(&store);
    Subject { store, close: Box::new(move || closing.close()), _folder: None }
}

fn sqlite() -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("log.db"), Options::default()).unwrap());
    let closing = Arc::clone(&store);
    Subject { store, close: Box::new(move || closing.close()), _folder: Some(folder) }
}

macro_rules! contract {
    ($($subject:ident: $($promise:ident),+;)+) => {
        mod in_memory {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$subject::$promise(super::memory()).await;
            })+)+
        }
        mod in_sqlite {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$subject::$promise(super::sqlite()).await;
            })+)+
        }
    };
}

contract! {
    log:
        every_kind_of_event_comes_back_as_it_went_in,
        a_conflict_is_told_and_harms_nothing_else,
        what_builds_on_a_failed_append_fails_too,
        of_two_that_expect_the_same_exactly_one_wins,
        an_append_of_nothing_only_checks_the_head,
        a_reader_sees_what_was_handed_over_before,
        reading_starts_after_the_cursor_even_within_an_append,
        a_page_of_a_run_is_the_beginning_of_what_is_to_be_read;
    feeds:
        places_are_dense_over_interleaved_runs_whatever_the_page,
        a_feed_loses_and_doubles_nothing_while_eight_write,
        a_feed_of_one_run_gives_that_run_alone,
        a_closed_store_takes_and_gives_nothing;
    runs:
        runs_are_found_without_their_logs,
        what_was_asked_is_known_without_the_log,
        a_filter_narrows_by_what_was_asked_and_by_how_it_ended,
        pages_from_the_newest_to_the_oldest_give_each_run_once,
        counts_say_how_the_runs_that_match_stand;
    beside:
        a_later_checkpoint_replaces_an_earlier_one,
        batches_and_their_tasks_are_kept_in_order,
        a_setting_is_kept_until_it_is_replaced_or_forgotten,
        changes_that_were_asked_for_are_found_by_who_asked_what;
    forgetting:
        a_forgotten_run_is_gone_and_the_others_are_as_they_were,
        a_place_is_not_used_again_even_if_it_was_the_last,
        what_is_open_is_not_forgotten;
}

fn seq(raw: u64) -> Seq {
    Seq::new(raw)
}

async fn everything(store: &dyn EventStore, page: usize) -> Vec<Envelope> {
    let mut facts = Vec::new();
    loop {
        let after = facts.last().map_or(Pos::START, |last: &Envelope| last.pos);
        let more = store.read_all(after, page).await.unwrap();
        if more.is_empty() {
            return facts;
        }
        facts.extend(more);
    }
}

/// Appends and waits.
async fn put(store: &dyn EventStore, run: RunId, expected: u64, facts: &[Fact]) {
    let ticket = store.append(run, seq(expected), facts).unwrap();
    store.durable(ticket).await.unwrap();
}
