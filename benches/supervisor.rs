//! Whole runs under the supervisor, with the scripted model: five turns, four of them with a call.
//!
//! Throughput is in turns; a fifth of it is runs. Each sample starts as many runs as are in flight at once.
#![expect(clippy::unwrap_used, reason = "a bench may panic")]

mod support;

use std::{sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use herder::model::scripted::Scripted;
use support::{Log, run_all, script, supervisor};

/// As the `herder` program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TURNS: u64 = 5;

fn runs(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let script = script(0);
    for (name, log) in [("memory", Log::Memory), ("durable", Log::Durable)] {
        let mut group = criterion.benchmark_group(format!("supervisor/{name}"));
        group.sampling_mode(SamplingMode::Flat).sample_size(10).measurement_time(Duration::from_secs(10));
        for in_flight in [1, 100, 1_000, 10_000_usize] {
            let folder = tempfile::tempdir().unwrap();
            let workspace = folder.path().to_str().unwrap();
            let model = Arc::new(Scripted::default());
            let supervisor = runtime.block_on(supervisor(log, folder.path(), model, in_flight));
            group.throughput(Throughput::Elements(TURNS * in_flight as u64));
            group.bench_function(BenchmarkId::from_parameter(in_flight), |bencher| {
                bencher.iter(|| {
                    let done = runtime.block_on(run_all(&supervisor, in_flight, workspace, Some(&script)));
                    assert_eq!(done, in_flight);
                });
            });
            runtime.block_on(supervisor.drain(Duration::ZERO));
        }
        group.finish();
    }
}

criterion_group!(benches, runs);
criterion_main!(benches);
