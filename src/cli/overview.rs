//! `herder batches`, `stats` and `audit`: lists that the daemon keeps.

use clap::Args;
use serde::Serialize;

use super::{
    Context, Exit,
    args::{Since, since},
    asking,
    render::one_line,
    start::say,
    stdout::Output,
    table::{self, Side},
};
use crate::{
    clock::{Clock, SystemClock, rfc3339},
    daemon::{
        client::Route,
        wire::{AuditEntry, AuditList, BatchList, StatsList, StatsRow},
    },
    domain::outcome::Outcome,
};

pub(super) const BATCHES: &str = "List batches, the newest last

With --json a batch is one line, as the daemon's API has it.";
pub(super) const BATCHES_AFTER: &str = "EXAMPLES
  herder batches
  herder batches --json | jq -r 'select(.state == \"open\") | .name'";

pub(super) const STATS: &str = "Show what runs came to, by group

Groups are models, batches, users who submitted, outcomes, days (of submission), or the values of a label.";
pub(super) const STATS_AFTER: &str = "EXAMPLES
  herder stats
  herder stats --by day --since 7d
  herder stats --by user --csv
  herder stats --by label:team --csv > teams.csv";

pub(super) const AUDIT: &str = "Show who asked the daemon to change what, and when";
pub(super) const AUDIT_AFTER: &str = "EXAMPLES
  herder audit --since 1d
  herder audit --user ann --verb cancel --json";

/// Flags of lists that are shown as a whole.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Print JSON, one a line
    #[arg(long)]
    pub json: bool,
}

/// Flags of `herder stats`.
#[derive(Clone, Debug, Args)]
pub struct StatsArgs {
    /// How runs are grouped: model, batch, user, outcome, day, or label:NAME
    #[arg(long, value_name = "WHAT", default_value = "model", value_parser = group)]
    pub by: String,
    /// Only runs submitted since, as 10m, 7d or 2026-11-30T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<Since>,
    /// Only runs submitted before
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub until: Option<Since>,
    /// Only runs of this batch
    #[arg(long, value_name = "BATCH")]
    pub batch: Option<String>,
    /// Print comma-separated values, with a line of heads
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print JSON, one group a line
    #[arg(long)]
    pub json: bool,
}

/// Flags of `herder audit`.
#[derive(Clone, Debug, Args)]
pub struct AuditArgs {
    /// Only what was asked since, as 10m, 7d or 2026-11-30T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<Since>,
    /// Only what was asked before
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub until: Option<Since>,
    /// Only what this user asked, by name or number
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Only this, as cancel
    #[arg(long, value_name = "VERB")]
    pub verb: Option<String>,
    /// Only what was asked of this run, batch or model
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// At most N, the newest
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print JSON, one a line
    #[arg(long)]
    pub json: bool,
}

fn group(text: &str) -> Result<String, String> {
    match text {
        "model" | "batch" | "user" | "outcome" | "day" => Ok(text.to_owned()),
        label if label.strip_prefix("label:").is_some_and(|name| !name.is_empty()) => Ok(label.to_owned()),
        _ => Err("want model, batch, user, outcome, day or label:NAME".to_owned()),
    }
}

pub(crate) async fn batches(args: ListArgs, context: Context) -> anyhow::Result<Exit> {
    let list: BatchList = asking::client(&context)?.get(&Route::to(["v1", "batches"])).await?;
    show(&list.batches, args.json, "no batches", table::batches)
}

pub(crate) async fn stats(args: StatsArgs, context: Context) -> anyhow::Result<Exit> {
    let route = Route::to(["v1", "stats"])
        .with("by", &args.by)
        .with_some("since", point(args.since))
        .with_some("until", point(args.until))
        .with_some("batch", args.batch.as_deref());
    let list: StatsList = asking::client(&context)?.get(&route).await?;
    if args.csv {
        let mut out = Output::stdout();
        let _open = out.line(&csv(&list))?;
        let _open = out.flush()?;
        return Ok(Exit::Done);
    }
    show(&list.rows, args.json, "no runs", |rows| table::stats(&list.by, rows))
}

pub(crate) async fn audit(args: AuditArgs, context: Context) -> anyhow::Result<Exit> {
    let route = Route::to(["v1", "audit"])
        .with_some("since", point(args.since))
        .with_some("until", point(args.until))
        .with_some("user", args.user.as_deref())
        .with_some("verb", args.verb.as_deref())
        .with_some("target", args.target.as_deref())
        .with_some("limit", args.limit);
    let list: AuditList = asking::client(&context)?.get(&route).await?;
    show(&list.entries, args.json, "nothing was asked", audited)
}

fn point(since: Option<Since>) -> Option<String> {
    since.map(|since| rfc3339(since.point(SystemClock.now())))
}

/// As data, a line each, or as a table.
fn show<T: Serialize>(
    rows: &[T],
    json: bool,
    none: &str,
    table: impl FnOnce(&[T]) -> String,
) -> anyhow::Result<Exit> {
    let mut out = Output::stdout();
    if json {
        for row in rows {
            if out.json(row)?.is_break() {
                return Ok(Exit::Done);
            }
        }
    } else if rows.is_empty() {
        say(none);
    } else {
        let _open = out.line(&table(rows))?;
    }
    let _open = out.flush()?;
    Ok(Exit::Done)
}

fn audited(entries: &[AuditEntry]) -> String {
    let heads = ["AT", "USER", "CLIENT", "WHAT", "OF", "CHANGED", "DETAIL"].map(|head| (head, Side::Left));
    table::table(
        heads,
        entries.iter().map(|entry| {
            let text = |text: &Option<String>| one_line(text.as_deref().unwrap_or("-"), 48);
            let number = || entry.uid.map(|uid| uid.to_string());
            [
                entry.at.clone(),
                text(&entry.user.clone().or_else(number)),
                text(&entry.client),
                entry.verb.clone(),
                one_line(&entry.target, 48),
                if entry.changed { "yes" } else { "no" }.to_owned(),
                text(&entry.detail),
            ]
        }),
    )
}

/// A column for each outcome, so that the table has the same columns whatever is in it.
fn csv(list: &StatsList) -> String {
    let heads = format!(
        "{},runs,{},turns,calls,input_tokens,output_tokens,cached_tokens,cost_usd,p50_ms,p99_ms",
        field(&list.by),
        Outcome::NAMES.join(",")
    );
    let row = |row: &StatsRow| {
        let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        let mut fields = vec![field(&row.group), row.runs.to_string()];
        fields.extend(
            Outcome::NAMES.iter().map(|name| row.ended.get(*name).copied().unwrap_or_default().to_string()),
        );
        fields.extend([row.turns, row.calls].map(|count| count.to_string()));
        fields.extend([row.usage.input, row.usage.output, row.usage.cached].map(|count| count.to_string()));
        fields.push(row.cost_usd.map_or_else(String::new, |usd| usd.to_string()));
        fields.extend([number(row.p50_ms), number(row.p99_ms)]);
        fields.join(",")
    };
    std::iter::once(heads).chain(list.rows.iter().map(row)).collect::<Vec<_>>().join("\n")
}

/// A field of comma-separated values (RFC 4180).
fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_with_a_comma_is_one_field() {
        let list: StatsList = serde_json::from_value(json!({"by": "label:team", "rows": [
            {"group": "a,\"b\"", "runs": 3, "ended": {"done": 2}, "turns": 6, "calls": 4,
             "usage": {"input": 10, "output": 5, "cached": 1, "estimated": false}, "cost_usd": 0.5, "p50_ms": 100, "p99_ms": null}
        ]}))
        .expect("stats");
        assert_eq!(
            csv(&list),
            "label:team,runs,done,budget,cancelled,blocked,provider_error,failed,turns,calls,input_tokens,output_tokens,\
             cached_tokens,cost_usd,p50_ms,p99_ms\n\"a,\"\"b\"\"\",3,2,0,0,0,0,0,6,4,10,5,1,0.5,100,"
        );
    }

    #[test]
    fn runs_are_grouped_by_what_the_daemon_knows() {
        assert!(["model", "day", "label:team"].iter().all(|by| group(by).is_ok()));
        assert!(["label:", "colour"].iter().all(|by| group(by).is_err()));
    }
}
