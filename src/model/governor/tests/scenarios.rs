//! What becomes of the limit, and of the runs, with servers of several kinds.

use std::time::Duration;

use super::{
    super::Rates,
    count, millis, secs,
    server::Setup,
    simulation::{Report, Simulation},
};

const RUNS: usize = 500;
const TURNS: u32 = 6;
const SEEDS: u64 = 8;

/// Refuses in all ways and fails in all ways.
fn rough() -> Setup {
    let retry_after = vec![None, Some(secs(2)), None, Some(secs(7))];
    Setup { faults: 0.04, retry_after, ..Setup::default() }
}

fn play(seed: u64, rates: &Rates, setup: Setup) -> Report {
    let report = Simulation::new(seed, RUNS, TURNS, rates, setup).play();
    assert_sound(&report);
    report
}

fn assert_sound(report: &Report) {
    assert_eq!(report.failed_runs, 0);
    assert_eq!(report.overrun, 0, "sent beyond the limit");
    assert!(report.cuts.windows(2).all(|cuts| cuts[1] - cuts[0] >= secs(15)), "{:?}", report.cuts);
}

/// How long the server needs at least for what it took, with 50 at once and so many a minute.
fn ideal(report: &Report, per_minute: Option<u32>) -> Duration {
    let by_places = report.busy / 50;
    let by_minutes = per_minute.map_or(Duration::ZERO, |limit| {
        let (minutes, rest) = (report.taken / limit, report.taken % limit);
        secs(60) * minutes + by_places * rest / report.taken
    });
    by_places.max(by_minutes)
}

fn assert_fast(report: &Report, per_minute: Option<u32>) {
    let ratio = report.took.as_secs_f64() / ideal(report, per_minute).as_secs_f64();
    assert!(ratio < 1.3, "{ratio:.2} of the ideal; limits {:?}", report.limits);
}

fn range(limits: &[u32]) -> (u32, u32) {
    (*limits.iter().min().unwrap(), *limits.iter().max().unwrap())
}

fn mean(limits: &[u32]) -> f64 {
    f64::from(limits.iter().sum::<u32>()) / limits.len() as f64
}

#[test]
fn with_a_server_that_takes_fifty_the_limit_settles_near_it_and_all_runs_are_served() {
    for seed in 0..SEEDS {
        let report = play(seed, &Rates::default(), rough());
        let settled = report.limits_from(60);
        let (least, most) = range(settled);
        assert!(least >= 38 && most <= 54, "{settled:?}");
        assert!(mean(settled) > 42.0, "{settled:?}");
        assert!(report.longest_stand() <= secs(30), "it froze: {:?}", report.limits);
        assert_fast(&report, None);
    }
}

#[test]
fn with_short_answers_the_limit_does_not_stand_at_the_cut_for_a_whole_horizon() {
    for seed in 0..SEEDS {
        let setup = Setup { latency: (millis(100), millis(500)), ..Setup::default() };
        let report = Simulation::new(seed, RUNS, 60, &Rates::default(), setup).play();
        assert_sound(&report);
        let settled = report.limits_from(60);
        assert!(mean(settled) > 45.0, "{:.1}: {settled:?}", mean(settled));
        assert_fast(&report, None);
    }
}

#[test]
fn refusals_that_ask_for_long_waits_slow_it_no_further() {
    for seed in 0..SEEDS {
        let report = play(seed, &Rates::default(), Setup { retry_after: vec![Some(secs(30))], ..rough() });
        assert!(report.cuts.windows(2).all(|cuts| cuts[1] - cuts[0] >= secs(30)), "{:?}", report.cuts);
        let settled = report.limits_from(120);
        assert!(range(settled).0 >= 38 && range(settled).1 <= 54, "{settled:?}");
    }
}

#[test]
fn a_minute_s_limit_that_is_configured_is_never_met_at_the_server() {
    for seed in 0..SEEDS {
        let rates = Rates { requests_per_minute: Some(count(600)), ..Rates::default() };
        let report = play(seed, &rates, Setup { per_minute: Some(600), ..rough() });
        assert_eq!((report.refused, report.cuts.len()), (0, 0));
        assert_fast(&report, Some(600));
    }
}

#[test]
fn a_minute_s_limit_that_is_told_is_seldom_met_and_one_that_is_not_told_costs_no_run() {
    for seed in 0..SEEDS {
        let setup = Setup { per_minute: Some(600), ..rough() };
        let told = play(seed, &Rates::default(), Setup { tells: true, ..setup.clone() });
        let untold = play(seed, &Rates::default(), setup);
        assert_fast(&told, Some(600));
        assert_fast(&untold, Some(600));
        assert!(told.refused * 2 < untold.refused, "{} of {}", told.refused, untold.refused);
    }
}

#[test]
fn where_a_server_takes_ten_times_as_many_the_limit_follows() {
    for seed in 0..SEEDS {
        let setup = Setup { capacity: vec![(Duration::ZERO, 20), (secs(120), 200)], ..Setup::default() };
        let report = Simulation::new(seed, 1_000, 12, &Rates::default(), setup).play();
        assert_sound(&report);
        let (least, most) = range(&report.limits[60..120]);
        assert!(least >= 15 && most <= 22, "{:?}", report.limits);
        let (least, most) = range(report.limits_from(120 + 240));
        assert!(least >= 150 && most <= 212, "{:?}", report.limits);
    }
}

#[test]
fn where_a_server_takes_a_tenth_as_many_the_limit_follows() {
    for seed in 0..SEEDS {
        let setup = Setup { capacity: vec![(Duration::ZERO, 100), (secs(120), 10)], ..Setup::default() };
        let report = Simulation::new(seed, RUNS, 10, &Rates::default(), setup).play();
        assert_sound(&report);
        let (least, most) = range(&report.limits[60..120]);
        assert!(least >= 76 && most <= 106, "{:?}", report.limits);
        let settled = report.limits_from(120 + 240);
        assert!(range(settled).0 >= 8 && range(settled).1 <= 12, "{:?}", report.limits);
    }
}

#[test]
fn with_a_server_that_never_refuses_but_slows_down_the_limit_stays_within_thrice_what_it_takes() {
    for seed in 0..SEEDS {
        let setup = Setup { queues: true, latency: (secs(2), secs(6)), ..Setup::default() };
        let report = Simulation::new(seed, 1_000, 20, &Rates::default(), setup).play();
        assert_sound(&report);
        assert_eq!(report.refused, 0);
        let (least, most) = range(report.limits_from(200));
        assert!(least >= 50 && most <= 150, "{:?}", report.limits);
        assert!(!report.cuts.is_empty());
    }
}
