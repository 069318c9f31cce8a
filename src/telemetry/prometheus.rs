//! Serves the metrics in Prometheus' text format, to this machine alone.

use std::{future::Future, net::SocketAddr, time::Duration};

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

use super::metric;

/// Seconds, from a lock that is free to a model that thinks for long.
const SECONDS: &[f64] =
    &[0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0];
/// Things done together.
const COUNTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// How often what was recorded is summed up though nobody asked.
const UPKEEP: Duration = Duration::from_secs(5);

/// Why metrics are not served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    #[error("{0} can be reached from other machines; want an address of this one, as 127.0.0.1:{port}", port = .0.port())]
    NotLoopback(SocketAddr),
    #[error("{0} has no port; want one, as 127.0.0.1:9090")]
    NoPort(SocketAddr),
    #[error("metrics cannot be served at {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: BuildError,
    },
    #[error("metrics cannot be recorded")]
    Setup(#[source] BuildError),
    #[error("metrics are recorded already")]
    Twice(#[source] metrics::SetRecorderError<metrics_exporter_prometheus::PrometheusRecorder>),
}

/// Starts to record the metrics of this process and listens at `address`; the future serves them. Must be called
/// within the runtime.
///
/// # Errors
/// An address that other machines reach, one that is taken, or a second start.
pub fn start(address: SocketAddr) -> Result<impl Future<Output = ()> + Send + use<>, MetricsError> {
    if !address.ip().is_loopback() {
        return Err(MetricsError::NotLoopback(address));
    }
    if address.port() == 0 {
        return Err(MetricsError::NoPort(address));
    }
    let listen = |source| MetricsError::Listen { address, source };
    let (recorder, serve) =
        builder().and_then(|builder| builder.with_http_listener(address).build()).map_err(listen)?;
    metrics::set_global_recorder(recorder).map_err(MetricsError::Twice)?;
    metric::describe();
    Ok(async move {
        if let Err(error) = serve.await {
            tracing::warn!(?error, "metrics are no longer served");
        }
    })
}

/// Starts to record the metrics of this process; what this returns writes them out. Must be called within the runtime,
/// whose tasks keep the records short.
///
/// # Errors
/// Metrics are recorded already.
pub fn record() -> Result<impl Fn() -> String + Send + Sync + use<>, MetricsError> {
    let recorder = builder().map_err(MetricsError::Setup)?.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(MetricsError::Twice)?;
    metric::describe();
    let upkeep = handle.clone();
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(UPKEEP);
        loop {
            tick.tick().await;
            upkeep.run_upkeep();
        }
    });
    Ok(move || handle.render())
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS).and_then(
        |builder| {
            builder.set_buckets_for_metric(Matcher::Full(metric::STORE_COMMIT_REQUESTS.to_owned()), COUNTS)
        },
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn refusal(address: &str) -> String {
        match start(address.parse().expect("an address")) {
            Ok(_) => "started".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// A free address that no other process takes meanwhile: it is made of this one's number, whose first bit is 0.
    fn own() -> SocketAddr {
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let host = std::net::Ipv4Addr::new(127, high | 0x80, middle, low);
        let free = std::net::TcpListener::bind((host, 0)).and_then(|socket| socket.local_addr());
        free.expect("an address")
    }

    #[test]
    fn an_address_that_other_machines_reach_is_refused() {
        assert_eq!(
            refusal("0.0.0.0:9090"),
            "0.0.0.0:9090 can be reached from other machines; want an address of this one, as 127.0.0.1:9090"
        );
        assert_eq!(refusal("[::1]:0"), "[::1]:0 has no port; want one, as 127.0.0.1:9090");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_counted_is_served_with_its_help() {
        let address = own();
        tokio::spawn(start(address).expect("starts"));
        metrics::counter!(metric::RUNS_ENDED, "outcome" => "done").increment(2);
        let page = tokio::task::spawn_blocking(move || {
            let mut stream = std::net::TcpStream::connect(address).expect("connects");
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                .expect("asked");
            let mut page = String::new();
            stream.read_to_string(&mut page).expect("answered");
            page
        });
        let page = page.await.expect("read");
        assert!(page.contains("# HELP herder_runs_ended_total Runs that ended, by `outcome`."), "{page}");
        assert!(page.contains("herder_runs_ended_total{outcome=\"done\"} 2"), "{page}");
    }
}
