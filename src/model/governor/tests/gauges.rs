//! What of a governor is in the metrics.

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::runtime::Builder;

use super::{
    super::{Account, Governor, LatchReason, Latched, Rates},
    adaptive, fixed,
};
use crate::domain::outcome::FaultClass;

#[test]
fn the_governors_of_an_account_add_up_and_take_their_part_back() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let shown = recorder.handle();
    let shows = |name: &str, value: u32| {
        let line = format!("herder_account_{name}{{account=\"a\"}} {value}");
        let rendered = shown.render();
        assert!(rendered.lines().any(|shown| shown == line), "{line} is not in\n{rendered}");
    };
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        let account = Account::new("a");
        let rates = Rates { concurrency: adaptive(1, 10, 100), ..Rates::default() };
        let (one, other) = (Governor::new(account.clone(), rates), Governor::new(account.clone(), fixed(5)));
        shows("limit", 15);
        let (mut permit, _permit) = runtime.block_on(async { (one.admit().await, other.admit().await) });
        runtime.block_on(permit.send(1));
        shows("in_flight", 2);
        permit.failed(FaultClass::RateLimit, None);
        shows("cuts_total", 1);
        shows("limit", 13);
        account.shut(Latched { reason: LatchReason::Quota, until: None, said: "".into() });
        shows("latched", 1);
        account.open();
        shows("latched", 0);
        drop((permit, one));
        shows("limit", 5);
        shows("in_flight", 1);
        shows("waiting", 0);
    });
}
