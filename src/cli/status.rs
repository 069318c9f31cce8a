//! `herder status`, `stop` and `reload`: the daemon itself.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{
    Context, Exit, asking, progress::short, render::one_line, start::say, stdout::Output, table, waits,
};
use crate::{
    clock::{Clock as _, SystemClock},
    daemon::{
        client::{Client, ClientError, Route},
        wire::{Changed, Gate, GateKind, Latch, ReloadReport, Status, Stop},
    },
    domain::time::Timestamp,
};

/// Characters of a server's words that are shown.
const SAID: usize = 100;

pub(super) const STATUS: &str = "Show the daemon in one look";
pub(super) const STATUS_AFTER: &str = "EXAMPLES
  herder status
  herder status --json | jq .load

EXIT CODES
  0  it answers
  5  no daemon answers
  6  it is of another version";

pub(super) const STOP: &str = "Stop the daemon

Runs reach the end of their turn first, for as long as its configuration says (drain_s), and go on when it is started again.";
pub(super) const STOP_AFTER: &str = "EXAMPLES
  herder stop --wait
  herder stop --now                                           do not wait for runs to end their turn";

pub(super) const RELOAD: &str = "Have the daemon read its configuration again

What changed is in force at once, or at its next start; which is which is told.";
pub(super) const RELOAD_AFTER: &str = "EXAMPLES
  herder reload
  herder reload --json | jq -r '.at_next_start[]'";

/// Flags of `herder status` and `herder reload`.
#[derive(Clone, Debug, Args)]
pub struct PlainArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `herder stop`.
#[derive(Clone, Debug, Args)]
pub struct StopArgs {
    /// Do not wait for runs to end their turn
    #[arg(long)]
    pub now: bool,
    /// Return when it has ended
    #[arg(long)]
    pub wait: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) async fn main(args: PlainArgs, context: Context) -> anyhow::Result<Exit> {
    let status: Status = ask(&asking::client(&context)?).await?;
    let mut out = Output::stdout();
    let _open = if args.json { out.json(&status)? } else { out.line(&text(&status, SystemClock.now()))? };
    let _open = out.flush()?;
    Ok(Exit::Done)
}

async fn ask(client: &Client) -> Result<Status, ClientError> {
    client.get(&Route::to(["v1", "status"])).await
}

fn text(status: &Status, now: Timestamp) -> String {
    let Status { load, rates, runs, .. } = status;
    let mut rows = vec![
        ("daemon", format!("{}, herder {}, process {}", status.phase, status.version, status.pid)),
        ("since", status.started_at.clone()),
        ("socket", status.socket.clone()),
    ];
    rows.extend(status.listen.clone().map(|listen| ("listens", listen)));
    let log = status.log_bytes.map_or_else(String::new, |bytes| format!(", log {}B", short(bytes)));
    rows.push(("state", format!("{}{log}", status.state)));
    rows.extend(
        status
            .trouble
            .clone()
            .map(|trouble| ("trouble", format!("{trouble}; nothing goes on until there is room"))),
    );
    rows.push((
        "live",
        format!(
            "{} of {} slots: {} ask their model, {} act; {} queued, {} held",
            load.live, status.max_live_runs, load.thinking, load.acting, load.queued, load.held
        ),
    ));
    rows.push(("calls", format!("{} run, {} wait", load.calls_running, load.calls_waiting)));
    rows.extend(
        (load.approvals > 0).then(|| ("approvals", format!("{} wait: `herder approvals`", load.approvals))),
    );
    // Nothing is spent where no price is known.
    let spent = rates.usd_per_min;
    let spent = if spent > 0.0 { format!(", ${spent:.4}/min") } else { String::new() };
    rows.push((
        "rates",
        format!(
            "{:.1} turns/s, {:.0} tokens/s, {:.1} runs/min{spent}",
            rates.turns_per_s, rates.tokens_per_s, rates.runs_per_min
        ),
    ));
    rows.push(("runs", table::counted_by_end(runs)));
    let usage = status.open_usage;
    let cost = status.open_cost_usd.map_or_else(String::new, |usd| format!(", ${usd:.4}"));
    rows.push(("open use", format!("{} tokens in, {} out{cost}", short(usage.input), short(usage.output))));
    rows.push(("batches", format!("{} open", status.open_batches)));
    rows.extend(status.paused.iter().map(|gate| ("paused", paused(gate))));
    rows.extend(status.shut.iter().map(|latch| ("shut", shut(latch, now))));
    let budgets: Vec<String> = status.budgets.iter().map(|budget| waits::budget(budget, now)).collect();
    rows.extend((!budgets.is_empty()).then(|| ("spent", budgets.join("; "))));
    rows.push(("followers", status.followers.to_string()));
    rows.extend(status.rss_bytes.map(|bytes| ("memory", format!("{}B", short(bytes)))));
    rows.iter().map(|(name, value)| format!("{name:<10} {value}")).collect::<Vec<_>>().join("\n")
}

fn shut(latch: &Latch, now: Timestamp) -> String {
    format!("{}: {} ({})", latch.account, waits::latched(latch, now), one_line(&latch.said, SAID))
}

fn paused(gate: &Gate) -> String {
    let what = match gate.kind {
        GateKind::All => "everything".to_owned(),
        GateKind::Batch => format!("batch {}", gate.name.as_deref().unwrap_or("?")),
        GateKind::Model => format!("model {}", gate.name.as_deref().unwrap_or("?")),
    };
    format!("{what}, {}", table::pause(gate.mode))
}

pub(crate) async fn stop(args: StopArgs, context: Context) -> anyhow::Result<Exit> {
    let client = asking::client(&context)?;
    let before = ask(&client).await?;
    let changed: Changed = client.post(&Route::to(["v1", "stop"]), &Stop { now: args.now }).await?;
    let mut out = Output::stdout();
    if args.json {
        let _open = out.json(&changed)?;
    } else if args.wait {
        say(if args.now { "stopping" } else { "stopping: runs end their turn" });
    } else {
        let _open = out.line("stopping")?;
    }
    let _open = out.flush()?;
    if args.wait {
        tokio::select! {
            () = ended(&client, before.pid) => {
                if !args.json {
                    let _open = out.line("stopped")?;
                    let _open = out.flush()?;
                }
            }
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
        }
    }
    Ok(Exit::Done)
}

/// How often it is looked whether the daemon has ended.
const INTERVAL: Duration = Duration::from_millis(100);

/// Waits until the daemon has ended. It closes its socket before it lets go of its state folder.
async fn ended(client: &Client, pid: u32) {
    gone(client, pid).await;
    while lives(pid) {
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Whether there is such a process, and not only its number that waits to be taken note of.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Waits until this process is no daemon any more.
async fn gone(client: &Client, pid: u32) {
    loop {
        match ask(client).await {
            Err(ClientError::NoDaemon { .. }) => return,
            Ok(status) if status.pid != pid => return,
            // It refuses much while it stops, and breaks off what it was saying.
            Ok(_) | Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}

pub(crate) async fn reload(args: PlainArgs, context: Context) -> anyhow::Result<Exit> {
    let report: ReloadReport =
        asking::client(&context)?.post(&Route::to(["v1", "reload"]), &json!({})).await?;
    let mut out = Output::stdout();
    let _open = if args.json { out.json(&report)? } else { out.line(&reloaded(&report))? };
    let _open = out.flush()?;
    Ok(Exit::Done)
}

fn reloaded(report: &ReloadReport) -> String {
    let list =
        |head: &str, keys: &[String]| (!keys.is_empty()).then(|| format!("{head} {}", keys.join(", ")));
    let lines = [list("in force now:", &report.applied), list("at the next start:", &report.at_next_start)];
    let lines: Vec<String> = lines.into_iter().flatten().collect();
    if lines.is_empty() { "nothing has changed".to_owned() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::from_rfc3339;

    #[test]
    fn the_daemon_in_one_look() {
        let status: Status = serde_json::from_value(json!({
            "version": "0.1.0", "api": 1, "pid": 42, "state": "/s", "socket": "/r/herder.sock", "listen": null,
            "started_at": "2026-11-30T08:00:00Z", "phase": "ready", "max_live_runs": 100,
            "load": {"live": 12, "queued": 30, "held": 1, "thinking": 10, "acting": 2, "calls_running": 3, "calls_waiting": 1, "approvals": 2},
            "rates": {"turns_per_s": 1.5, "tokens_per_s": 1234.5, "runs_per_min": 30.0, "usd_per_min": 0.25},
            "runs": {"total": 10_043, "open": 43, "ended": {"done": 10_000}},
            "open_usage": {"input": 12_000, "output": 500, "cached": 0, "estimated": false}, "open_cost_usd": 0.5,
            "open_batches": 1, "paused": [{"kind": "model", "name": "openai:m", "mode": "hold"}], "followers": 2,
            "shut": [{"account": "api.openai.com/v1", "reason": "quota", "until": "2026-11-30T14:05:00Z", "said": "HTTP 402: no\ncredit"}],
            "budgets": [
                {"kind": "process", "user": null, "until": null, "spent_usd": 0.42, "reserved_usd": 0.1, "cap_usd": 1.0},
                {"kind": "user", "user": "ann", "until": "2026-12-01T00:00:00Z", "spent_usd": 0.3, "reserved_usd": 0.0, "cap_usd": 50.0}
            ],
            "rss_bytes": 30_000_000, "log_bytes": 5_000_000
        }))
        .expect("a status");
        let now = from_rfc3339("2026-11-30T09:00:00Z").expect("a time");
        insta::assert_snapshot!(text(&status, now));
    }

    #[test]
    fn what_a_reload_changed_is_told_by_when_it_holds() {
        let report = ReloadReport { applied: vec!["a".into(), "b".into()], at_next_start: vec!["c".into()] };
        assert_eq!(reloaded(&report), "in force now: a, b\nat the next start: c");
        assert_eq!(reloaded(&ReloadReport::default()), "nothing has changed");
    }
}
