//! A model server with limits, over real HTTP: so many requests at once, so many in a window, and failures of all kinds.
//!
//! It streams Chat Completions. Which requests fail, and how, is drawn from a seed by run, turn and try: whatever the
//! order in which they come. A run is known by the task that it was given. Of all that it does it keeps an account.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    body::{Body, to_bytes},
    response::Response,
};
use futures_util::stream;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep},
};

use super::{chat, server::Rules};

/// What the server allows, and how it answers.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) seed: u64,
    pub(crate) at_once: usize,
    /// So many requests in any stretch of time of this length.
    pub(crate) rate: (usize, Duration),
    /// Whether answers tell what is left of the rate.
    pub(crate) tells: bool,
    pub(crate) latency: (Duration, Duration),
    /// The share of requests that fail.
    pub(crate) faults: f64,
    /// The header by which a refusal says when to ask again, if it does, in turn.
    pub(crate) retry_after: Vec<Option<(&'static str, &'static str)>>,
    /// Answers of each run. All but the last ask for a call of this tool.
    pub(crate) turns: usize,
    pub(crate) tool: (&'static str, Value),
}

/// What the server has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// By task and turn.
    pub(crate) turns: BTreeMap<(String, usize), Turn>,
    /// Requests that are at work, and the most that ever were.
    pub(crate) out: usize,
    pub(crate) most_out: usize,
    /// When each request was taken.
    pub(crate) taken: Vec<Instant>,
    /// Requests that came while too many were at work, and beyond the rate.
    pub(crate) beyond_places: usize,
    pub(crate) beyond_rate: usize,
    /// How often it failed, by kind.
    pub(crate) faults: BTreeMap<&'static str, usize>,
    /// What was wrong with requests that no server would take.
    pub(crate) wrong: Vec<String>,
}

/// What came of the requests for one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) asked: usize,
    pub(crate) refused: usize,
    pub(crate) failed: usize,
    /// Whole answers.
    pub(crate) served: usize,
    /// How long its requests were at work.
    pub(crate) busy: Duration,
}

/// The server; it ends when it is dropped.
pub(crate) struct Limited {
    address: SocketAddr,
    desk: Arc<Desk>,
    task: AbortHandle,
}

struct Desk {
    limits: Limits,
    account: Mutex<Account>,
}

type Headers = Vec<(&'static str, String)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answer,
    Status(u16),
    /// The head of an answer, and nothing more.
    Stall,
    /// Half an answer.
    Drop,
}

enum Step {
    Send(Duration, String),
    /// The end of an answer: its place is free before anybody can have read it.
    End(Duration, String),
    Silence,
    Break(Duration),
}

/// A request at work.
struct Place {
    desk: Arc<Desk>,
    key: (String, usize),
    draw: Draw,
    since: Instant,
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Limited {
    pub(crate) async fn start(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let desk = Arc::new(Desk { limits, account: Mutex::default() });
        let task = tokio::spawn(accept(listener, Arc::clone(&desk))).abort_handle();
        Self { address, desk, task }
    }

    /// The address that a provider is given.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn account(&self) -> Account {
        self.desk.account().clone()
    }
}

async fn accept(listener: TcpListener, desk: Arc<Desk>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let desk = Arc::clone(&desk);
        let service = service_fn(move |request| {
            let desk = Arc::clone(&desk);
            async move { Ok::<_, Infallible>(desk.answer(request).await) }
        });
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

impl Desk {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response {
        let body = to_bytes(Body::new(request.into_body()), usize::MAX).await.unwrap_or_default();
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        if let Err(wrong) = chat::check(&request, &Rules::default()) {
            self.account().wrong.push(wrong.clone());
            return answer(400, &[], Body::from(wrong));
        }
        let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of = |role: &'static str| messages.iter().filter(move |message| message["role"] == role);
        let task = of("user").find_map(|message| message["content"].as_str()).unwrap_or_default();
        let key = (task.to_owned(), of("assistant").count());
        match self.take(key) {
            (Some(place), headers) => self.serve(place, &headers),
            (None, headers) => {
                answer(429, &headers, Body::from(r#"{"error":{"message":"too many requests"}}"#))
            }
        }
    }

    /// Takes the request if the limits allow it, with what the head of its answer says in any case.
    fn take(self: &Arc<Self>, key: (String, usize)) -> (Option<Place>, Headers) {
        let (allowed, window) = self.limits.rate;
        let mut account = self.account();
        let account = &mut *account;
        let now = Instant::now();
        let recent = account.taken.partition_point(|at| *at + window <= now);
        let is_spent = account.taken.len() - recent >= allowed;
        let turn = account.turns.entry(key.clone()).or_default();
        turn.asked += 1;
        if is_spent || account.out >= self.limits.at_once {
            turn.refused += 1;
            *(if is_spent { &mut account.beyond_rate } else { &mut account.beyond_places }) += 1;
            let kind = (account.beyond_rate + account.beyond_places) % self.limits.retry_after.len();
            let mut headers = self.told(&account.taken[recent..], now);
            headers.extend(self.limits.retry_after[kind].map(|(name, value)| (name, value.to_owned())));
            return (None, headers);
        }
        let draw = Draw::new((self.limits.seed, &key, turn.asked - turn.refused));
        if let Some(kind) = draw.fate(self.limits.faults).kind() {
            turn.failed += 1;
            *account.faults.entry(kind).or_default() += 1;
        }
        account.taken.push(now);
        account.out += 1;
        account.most_out = account.most_out.max(account.out);
        let headers = self.told(&account.taken[recent..], now);
        (Some(Place { desk: Arc::clone(self), key, draw, since: now }), headers)
    }

    /// What is left of the rate after the requests of the last window.
    fn told(&self, recent: &[Instant], now: Instant) -> Headers {
        let (allowed, window) = self.limits.rate;
        let reset = recent.first().map_or(Duration::ZERO, |oldest| *oldest + window - now);
        let headers = [
            ("x-ratelimit-limit-requests", allowed.to_string()),
            ("x-ratelimit-remaining-requests", (allowed - recent.len()).to_string()),
            ("x-ratelimit-reset-requests", format!("{}ms", reset.as_millis())),
        ];
        headers.into_iter().filter(|_| self.limits.tells).collect()
    }

    fn serve(&self, place: Place, headers: &[(&'static str, String)]) -> Response {
        let (least, most) = self.limits.latency;
        let latency = least + (most - least).mul_f64(place.draw.share("latency"));
        let mut events = self.events(&place.key).into_iter().map(|event| format!("data: {event}\n\n"));
        let first = Step::Send(latency / 4, events.next().unwrap_or_default());
        let steps = match place.draw.fate(self.limits.faults) {
            Fate::Status(status) => return answer(status, headers, Body::from("{}")),
            Fate::Stall => vec![Step::Silence],
            Fate::Drop => vec![first, Step::Break(latency / 4)],
            Fate::Answer => {
                let rest = events.chain(["data: [DONE]\n\n".to_owned()]).collect();
                vec![first, Step::End(latency * 3 / 4, rest)]
            }
        };
        let streamed = [("content-type", "text/event-stream".to_owned())];
        answer(200, &[headers, &streamed].concat(), stream(place, steps))
    }

    fn events(&self, (_, turn): &(String, usize)) -> Vec<Value> {
        let (tool, arguments) = &self.limits.tool;
        if turn + 1 >= self.limits.turns {
            let word = chat::chunk(&json!({ "content": "done" }), None);
            return vec![word, chat::chunk(&json!({}), Some("stop")), chat::usage(10, 5)];
        }
        let call = json!({
            "index": 0, "id": format!("call_{turn}"), "type": "function",
            "function": { "name": tool, "arguments": arguments.to_string() },
        });
        let call = chat::chunk(&json!({ "tool_calls": [call] }), None);
        vec![call, chat::chunk(&json!({}), Some("tool_calls")), chat::usage(10, 5)]
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap()
    }
}

fn answer(status: u16, headers: &[(&'static str, String)], body: Body) -> Response {
    let response = Response::builder().status(status);
    headers.iter().fold(response, |response, (name, value)| response.header(*name, value)).body(body).unwrap()
}

fn stream(place: Place, steps: Vec<Step>) -> Body {
    let steps = steps.into_iter();
    let body = stream::unfold((Some(place), steps), |(mut place, mut steps)| async move {
        let chunk = match steps.next()? {
            Step::Send(after, text) => {
                sleep(after).await;
                Ok(text)
            }
            Step::End(after, text) => {
                sleep(after).await;
                place.take().into_iter().for_each(Place::served);
                Ok(text)
            }
            Step::Silence => std::future::pending().await,
            Step::Break(after) => {
                sleep(after).await;
                Err(io::Error::other("broken off"))
            }
        };
        Some((chunk, (place, steps)))
    });
    Body::from_stream(body)
}

impl Place {
    fn served(self) {
        self.desk.account().turns.entry(self.key.clone()).or_default().served += 1;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut account = self.desk.account();
        account.out -= 1;
        account.turns.entry(self.key.clone()).or_default().busy += self.since.elapsed();
    }
}

impl Fate {
    fn kind(self) -> Option<&'static str> {
        match self {
            Self::Answer => None,
            Self::Status(503) => Some("503"),
            Self::Status(_) => Some("529"),
            Self::Stall => Some("stall"),
            Self::Drop => Some("drop"),
        }
    }
}

/// What is drawn for one try: the same each time.
#[derive(Clone)]
struct Draw(DefaultHasher);

impl Draw {
    fn new(of: impl std::hash::Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        Self(hasher)
    }

    /// From 0 to 1.
    fn share(&self, what: &str) -> f64 {
        let mut hasher = self.0.clone();
        what.hash(&mut hasher);
        (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn fate(&self, faults: f64) -> Fate {
        match self.share("fate") / faults.max(f64::MIN_POSITIVE) {
            kind if kind < 0.25 => Fate::Status(503),
            kind if kind < 0.5 => Fate::Status(529),
            kind if kind < 0.75 => Fate::Stall,
            kind if kind < 1.0 => Fate::Drop,
            _ => Fate::Answer,
        }
    }
}
