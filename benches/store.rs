//! What a durable step costs: an append of one 600-byte event and the wait for it, by 1, 100 and 1,000 writers.

use std::{sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use herder::{
    domain::{
        call::ToolResult,
        event::{Event, Fact},
        id::{CallId, RunId, Seq},
        time::Timestamp,
    },
    store::{
        EventStore,
        memory::MemoryStore,
        sqlite::{Durability, Options, SqliteStore},
    },
};

/// Events each writer appends in one measured round.
const ROUND: u64 = 20;

fn fact() -> Fact {
    let result = ToolResult {
        call: CallId::new("call-1"),
        ok: true,
        output: "0123456789".repeat(46).into(),
        failure: None,
        terminate: false,
        timing: None,
    };
    Fact {
        at: Timestamp::from_micros(1_760_000_000_000_000),
        turn: 1,
        event: Event::Result(Arc::new(result)),
    }
}

/// Each writer appends and waits, event after event, to a run of its own; returns once all have done their round.
async fn round(store: Arc<dyn EventStore>, writers: u64, done: u64) {
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let run = RunId::from_bytes(u128::from(writers << 32 | writer).to_be_bytes());
                let fact = fact();
                for place in done..done + ROUND {
                    let ticket = store.append(run, Seq::new(place), std::slice::from_ref(&fact))?;
                    store.durable(ticket).await?;
                }
                Ok::<_, herder::store::StoreError>(())
            })
        })
        .collect();
    for task in tasks {
        let written = task.await;
        assert!(matches!(written, Ok(Ok(()))), "{written:?}");
    }
}

fn sqlite(folder: &tempfile::TempDir, durability: Durability) -> Arc<dyn EventStore> {
    let options = Options { durability, ..Options::default() };
    let store = SqliteStore::open(&folder.path().join("log.db"), options);
    assert!(store.is_ok(), "{:?}", store.err());
    store.map(Arc::new).unwrap_or_else(|_| unreachable!())
}

fn durable_steps(criterion: &mut Criterion) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let Ok(runtime) = builder.worker_threads(2).build() else { return };
    let Ok(folders) = (0..2).map(|_| tempfile::tempdir_in("target")).collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let stores = [
        ("memory", Arc::new(MemoryStore::default()) as Arc<dyn EventStore>),
        ("sqlite-process", sqlite(&folders[0], Durability::Process)),
        ("sqlite-power", sqlite(&folders[1], Durability::Power)),
    ];
    for (name, store) in stores {
        let mut group = criterion.benchmark_group(format!("durable-step/{name}"));
        group.sample_size(10).measurement_time(Duration::from_secs(3));
        let mut done = [0; 3];
        for (writers, done) in [1, 100, 1_000].into_iter().zip(&mut done) {
            group.throughput(Throughput::Elements(writers * ROUND));
            group.bench_with_input(BenchmarkId::from_parameter(writers), &writers, |bencher, &writers| {
                bencher.iter(|| {
                    runtime.block_on(round(Arc::clone(&store), writers, *done));
                    *done += ROUND;
                });
            });
        }
    }
}

criterion_group!(benches, durable_steps);
criterion_main!(benches);
