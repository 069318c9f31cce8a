//! The models as the configuration, the catalogue and the daemon know them, one a line.

use std::collections::BTreeSet;

use serde::Serialize;

use super::ModelsArgs;
use crate::{
    cli::{
        Context, Exit, asking,
        progress::short,
        start::say,
        stdout::Output,
        table::{self, Side, table},
        waits,
    },
    clock::{Clock as _, SystemClock},
    config::{Config, Price},
    daemon::{
        client::{ClientError, Route},
        wire::{KeyState, Latch, ModelList, ModelLoad, ModelView, PauseMode},
    },
    domain::{text::bare_url, time::Timestamp},
};

/// Runs the command.
pub(super) async fn main(args: &ModelsArgs, context: &Context) -> anyhow::Result<Exit> {
    let live = live(context).await?;
    let is_live = live.is_some();
    let live: Vec<Row> = live.into_iter().flat_map(|list| list.models).map(Row::live).collect();
    let named: BTreeSet<&str> = live.iter().map(|row| row.name.as_str()).collect();
    let others = context.config.model_names().filter(|name| !named.contains(name));
    let others: Vec<Row> = others.filter_map(|name| Row::of(&context.config, name)).collect();
    let fits = |row: &Row| args.filter.as_deref().is_none_or(|filter| row.fits(filter));
    let rows: Vec<Row> = live.into_iter().chain(others).filter(fits).collect();
    let mut out = Output::stdout();
    if args.json {
        for row in &rows {
            if out.json(row)?.is_break() {
                return Ok(Exit::Done);
            }
        }
    } else if rows.is_empty() {
        say("no model fits");
    } else {
        let _open = out.line(&if is_live { shown_live(&rows, SystemClock.now()) } else { shown(&rows) })?;
    }
    let _open = out.flush()?;
    Ok(Exit::Done)
}

/// A model, as far as it is known.
#[derive(Debug, Default, Serialize)]
struct Row {
    name: String,
    provider: String,
    model: String,
    server: Option<String>,
    key: Option<KeyState>,
    account: Option<String>,
    context_window: Option<u64>,
    max_output_tokens: Option<u32>,
    input_usd_per_mtok: Option<f64>,
    cached_usd_per_mtok: Option<f64>,
    cache_write_usd_per_mtok: Option<f64>,
    output_usd_per_mtok: Option<f64>,
    requests_per_minute: Option<u32>,
    tokens_per_minute: Option<u64>,
    max_concurrency: Option<u32>,
    fallbacks: Vec<String>,
    /// What a daemon says of it; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_runs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<PauseMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latched: Option<Latch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    load: Option<ModelLoad>,
}

impl Row {
    fn of(config: &Config, name: &str) -> Option<Self> {
        let model = config.describe(name).ok()?;
        let [input, cached, cache_write, output] = prices(model.price);
        Some(Self {
            name: name.to_owned(),
            provider: model.provider.as_str().to_owned(),
            key: Some((&model.key).into()),
            model: model.model,
            server: model.base_url.as_deref().map(|url| bare_url(url).into_owned()),
            account: Some(model.account),
            context_window: model.context_window.map(u64::from),
            max_output_tokens: model.max_output_tokens,
            input_usd_per_mtok: input,
            cached_usd_per_mtok: cached,
            cache_write_usd_per_mtok: cache_write,
            output_usd_per_mtok: output,
            requests_per_minute: model.requests_per_minute.map(Into::into),
            tokens_per_minute: model.tokens_per_minute.map(Into::into),
            max_concurrency: model.max_concurrency.map(Into::into),
            fallbacks: model.fallbacks,
            open_runs: None,
            paused: None,
            latched: None,
            load: None,
        })
    }

    /// A model that the daemon knows, all by the daemon's configuration: it is the one that asks.
    fn live(view: ModelView) -> Self {
        Self {
            open_runs: Some(view.open_runs),
            paused: view.paused,
            latched: view.latched,
            load: view.load,
            name: view.name,
            provider: view.provider,
            model: view.model,
            server: view.server,
            key: view.key,
            account: view.account,
            max_output_tokens: view.max_output_tokens,
            context_window: view.context_window,
            input_usd_per_mtok: view.input_usd_per_mtok,
            cached_usd_per_mtok: view.cached_usd_per_mtok,
            cache_write_usd_per_mtok: view.cache_write_usd_per_mtok,
            output_usd_per_mtok: view.output_usd_per_mtok,
            requests_per_minute: view.requests_per_minute,
            tokens_per_minute: view.tokens_per_minute,
            max_concurrency: view.max_concurrency,
            fallbacks: view.fallbacks,
        }
    }

    fn fits(&self, filter: &str) -> bool {
        let filter = filter.to_lowercase();
        [Some(&self.name), Some(&self.provider), Some(&self.model), self.server.as_ref()]
            .into_iter()
            .flatten()
            .any(|text| text.to_lowercase().contains(&filter))
    }
}

/// Input, cached, put into the cache, output.
const fn prices(price: Price) -> [Option<f64>; 4] {
    match price {
        Price::Unknown => [None; 4],
        Price::Free => [Some(0.0); 4],
        Price::PerMtok { input, output, cached, cache_write } => {
            [Some(input), Some(cached), Some(cache_write), Some(output)]
        }
    }
}

/// What the daemon knows. Without one the rest is worth a look, unless somebody said where it is.
async fn live(context: &Context) -> anyhow::Result<Option<ModelList>> {
    if context.state.is_some() {
        return Ok(None);
    }
    let client = match asking::client(context) {
        Ok(client) => client,
        Err(_) if context.socket.is_none() => return Ok(None),
        Err(error) => return Err(error),
    };
    match client.get(&Route::to(["v1", "models"])).await {
        Ok(list) => Ok(Some(list)),
        Err(ClientError::NoDaemon { .. }) if context.socket.is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

const HEADS: [(&str, Side); 9] = [
    ("MODEL", Side::Left),
    ("SERVER", Side::Left),
    ("KEY", Side::Left),
    ("WINDOW", Side::Right),
    ("ANSWER", Side::Right),
    ("$/M IN", Side::Right),
    ("CACHED", Side::Right),
    ("$/M OUT", Side::Right),
    ("LIMITS", Side::Left),
];

fn shown(rows: &[Row]) -> String {
    table(HEADS, rows.iter().map(cells))
}

fn shown_live(rows: &[Row], now: Timestamp) -> String {
    let [a, b, c, d, e, f, g, h, i] = HEADS;
    let live = [("OPEN RUNS", Side::Right), ("ASKING", Side::Right), ("WAITING", Side::Right)];
    let [open, asking, waiting] = live;
    let heads = [a, b, c, d, e, f, g, h, open, asking, waiting, ("STANDS", Side::Left), i];
    table(
        heads,
        rows.iter().map(|row| {
            let [a, b, c, d, e, f, g, h, i] = cells(row);
            let open = row.open_runs.map_or_else(dash, |runs| runs.to_string());
            let waiting = row.load.map_or_else(dash, |load| (load.waiting + load.held_back).to_string());
            [a, b, c, d, e, f, g, h, open, asking_now(row), waiting, standing(row, now), i]
        }),
    )
}

/// How many requests are under way, of how many that may be.
fn asking_now(row: &Row) -> String {
    let Some(ModelLoad { in_flight, limit, .. }) = row.load else { return dash() };
    limit.map_or_else(|| in_flight.to_string(), |limit| format!("{in_flight}/{limit}"))
}

/// What keeps runs from asking it.
fn standing(row: &Row, now: Timestamp) -> String {
    let paused = row.paused.map(|mode| format!("paused, {}", table::pause(mode)));
    let latched = row.latched.as_ref().map(|latch| waits::latched(latch, now));
    let all: Vec<String> = paused.into_iter().chain(latched).collect();
    if all.is_empty() { dash() } else { all.join("; ") }
}

fn cells(row: &Row) -> [String; 9] {
    let price = |usd: Option<f64>| usd.map_or_else(dash, dollars);
    let server =
        row.server.as_deref().map(|server| server.split_once("://").map_or(server, |(_, rest)| rest));
    [
        row.name.clone(),
        server.unwrap_or(&row.provider).to_owned(),
        row.key.as_ref().map_or_else(dash, table::word),
        row.context_window.map_or_else(dash, short),
        row.max_output_tokens.map_or_else(dash, |tokens| short(tokens.into())),
        price(row.input_usd_per_mtok),
        price(row.cached_usd_per_mtok),
        price(row.output_usd_per_mtok),
        limits(row),
    ]
}

/// Rates and fallbacks, as far as there are any.
fn limits(row: &Row) -> String {
    let requests = row.requests_per_minute.map(|count| format!("{count} requests/min"));
    let tokens = row.tokens_per_minute.map(|count| format!("{} tokens/min", short(count)));
    let at_once = row.max_concurrency.map(|count| format!("{count} at once"));
    let fallbacks = (!row.fallbacks.is_empty()).then(|| format!("then {}", row.fallbacks.join(", ")));
    let all: Vec<String> = [requests, tokens, at_once, fallbacks].into_iter().flatten().collect();
    if all.is_empty() { dash() } else { all.join(", ") }
}

/// At least cents, and no more digits than there are.
fn dollars(usd: f64) -> String {
    let (short, exact) = (format!("{usd:.2}"), format!("{usd}"));
    if exact.len() > short.len() { exact } else { short }
}

fn dash() -> String {
    "-".to_owned()
}
