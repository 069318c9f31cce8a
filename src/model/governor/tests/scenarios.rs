//! What the limit does against servers of several kinds.

use std::{num::NonZeroU32, time::Duration};

use super::{
    super::Rates,
    adaptive, count, secs,
    server::Setup,
    simulation::{Report, Simulation},
};

fn show(name: &str, report: &Report) {
    let line: Vec<String> = report.limits.iter().step_by(10).map(u32::to_string).collect();
    eprintln!(
        "{name}: took {:?} failed {} refused {} taken {} busy/50 {:?} cuts {} closest {:?} overrun {}\n   {}",
        report.took,
        report.failed_runs,
        report.refused,
        report.taken,
        report.busy / 50,
        report.cuts.len(),
        report.closest_cuts(),
        report.overrun,
        line.join(" ")
    );
}

#[test]
fn explore() {
    let faults = 0.04;
    let mixed = vec![None, Some(secs(2)), None, Some(secs(7))];
    let rates = Rates::default();
    for seed in 0..3 {
        let s = Setup { faults, retry_after: mixed.clone(), ..Setup::default() };
        show("50", &Simulation::new(seed, 500, 6, &rates, s.clone()).play());
        let s = Setup { per_minute: Some(900), ..s };
        show("50, 900/min unknown", &Simulation::new(seed, 500, 6, &rates, s.clone()).play());
        show(
            "50, 900/min told",
            &Simulation::new(seed, 500, 6, &rates, Setup { tells: true, ..s.clone() }).play(),
        );
        let known = Rates { requests_per_minute: Some(count(900)), ..rates.clone() };
        show("50, 900/min known", &Simulation::new(seed, 500, 6, &known, s.clone()).play());
        let s = Setup { capacity: vec![(Duration::ZERO, 20), (secs(300), 200)], ..Setup::default() };
        show("20->200", &Simulation::new(seed, 1000, 20, &rates, s).play());
        let s = Setup { capacity: vec![(Duration::ZERO, 100), (secs(120), 10)], ..Setup::default() };
        show("100->10", &Simulation::new(seed, 500, 12, &rates, s).play());
        let s = Setup { queues: true, latency: (secs(2), secs(6)), ..Setup::default() };
        show("slows", &Simulation::new(seed, 1000, 10, &rates, s).play());
        let s = Setup { retry_after: vec![Some(secs(30))], ..Setup::default() };
        show("retry-after 30", &Simulation::new(seed, 500, 6, &rates, s).play());
    }
}
