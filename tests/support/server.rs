//! An HTTP server in the test's own process that speaks one protocol to the letter, and answers as it is told.
//!
//! A request that breaks the rules of its [`Protocol`] is refused before the test's closure sees it. Answers can be cut
//! into any chunks, delayed, broken off, or never come. HTTP/1.1 by hand, since that is the only way to be bad at it.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use super::{chat, messages, responses};

/// Longer than anything takes that is not stuck.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// What the server answers.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// These events, as the protocol frames and ends them.
    Stream(Vec<Value>),
    /// A stream, step by step.
    Raw(Vec<Step>),
    /// One JSON document.
    Json(Value),
    /// Any status.
    Status { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// Nothing, for ever.
    Hang,
    /// Nothing, and the connection closes.
    Drop,
}

/// One step of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sent as one chunk.
    Bytes(Vec<u8>),
    Wait(Duration),
    /// Nothing more, for ever.
    Hang,
    /// The connection closes before the body ends.
    Drop,
}

/// What the server insists on, beside the protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) protocol: Protocol,
    /// The key that a request must carry; none: any will do.
    pub(crate) key: Option<String>,
    /// Whether a message may carry reasoning.
    pub(crate) reasoning: bool,
}

/// What the server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Chat,
    Messages,
    Responses,
}

impl Protocol {
    fn request_line(self) -> &'static str {
        match self {
            Self::Chat => "POST /v1/chat/completions HTTP/1.1",
            Self::Messages => "POST /v1/messages HTTP/1.1",
            Self::Responses => "POST /v1/responses HTTP/1.1",
        }
    }

    /// The header that carries a key, and what it holds then.
    fn key(self, key: &str) -> (&'static str, String) {
        match self {
            Self::Chat | Self::Responses => ("authorization", format!("Bearer {key}")),
            Self::Messages => ("x-api-key", key.to_owned()),
        }
    }

    fn version(self) -> Option<&'static str> {
        match self {
            Self::Chat | Self::Responses => None,
            Self::Messages => Some("2023-06-01"),
        }
    }

    fn check(self, request: &Value, rules: &Rules) -> Result<(), String> {
        match self {
            Self::Chat => chat::check(request, rules),
            Self::Messages => messages::check(request),
            Self::Responses => responses::check(request),
        }
    }

    fn frame(self, events: &[Value]) -> String {
        match self {
            Self::Chat => {
                let events = events.iter().map(|event| format!("data: {event}\n\n"));
                events.chain(["data: [DONE]\n\n".to_owned()]).collect()
            }
            Self::Messages | Self::Responses => messages::framed(events),
        }
    }
}

type Answering = dyn Fn(&Value) -> Answer + Send + Sync;

struct Shared {
    rules: Rules,
    answer: Box<Answering>,
    requests: watch::Sender<Vec<Arc<Value>>>,
    bodies: Mutex<Vec<Vec<u8>>>,
    refusals: Mutex<Vec<String>>,
    open: watch::Sender<usize>,
    accepted: AtomicUsize,
    chunks: watch::Sender<usize>,
}

/// The server; it ends when it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts a server that answers valid requests by `answer`.
    pub(crate) async fn start(answer: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> Self {
        Self::strict(Rules::default(), answer).await
    }

    /// The same, with more rules.
    pub(crate) async fn strict(
        rules: Rules,
        answer: impl Fn(&Value) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            rules,
            answer: Box::new(answer),
            requests: watch::Sender::default(),
            bodies: Mutex::default(),
            refusals: Mutex::default(),
            open: watch::Sender::default(),
            accepted: AtomicUsize::default(),
            chunks: watch::Sender::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Self { address, shared, task }
    }

    /// The address that a provider is given.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The bodies of the requests that kept the rules, in their order.
    pub(crate) fn requests(&self) -> Vec<Arc<Value>> {
        self.shared.requests.borrow().clone()
    }

    /// The same, byte for byte.
    pub(crate) fn bodies(&self) -> Vec<Vec<u8>> {
        self.shared.bodies.lock().unwrap().clone()
    }

    /// What was wrong with the requests that didn't.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.shared.refusals.lock().unwrap().clone()
    }

    /// Waits until `count` valid requests have come.
    pub(crate) async fn asked(&self, count: usize) {
        let mut requests = self.shared.requests.subscribe();
        timeout(DEADLINE, requests.wait_for(|requests| requests.len() >= count)).await.unwrap().unwrap();
    }

    /// Waits until so many chunks of streams are sent.
    pub(crate) async fn sent(&self, count: usize) {
        let mut chunks = self.shared.chunks.subscribe();
        timeout(DEADLINE, chunks.wait_for(|chunks| *chunks >= count)).await.unwrap().unwrap();
    }

    /// Waits until no connection is open.
    pub(crate) async fn closed(&self) {
        let mut open = self.shared.open.subscribe();
        timeout(DEADLINE, open.wait_for(|open| *open == 0)).await.unwrap().unwrap();
    }

    /// Connections that there were.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        *self.shared.open.borrow()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        shared.open.send_modify(|open| *open += 1);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let mut connection = Connection {
                stream,
                protocol: shared.rules.protocol,
                read: Vec::new(),
                chunks: &shared.chunks,
            };
            while let Some(request) = connection.request().await {
                if connection.answer(shared.judge(&request)).await.is_none() {
                    break;
                }
            }
            shared.open.send_modify(|open| *open -= 1);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// A request as it came.
struct Received {
    head: String,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}

impl Shared {
    fn judge(&self, request: &Received) -> Answer {
        let refuse = |status: u16, message: String| {
            self.refusals.lock().unwrap().push(message.clone());
            let body = serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}})
                .to_string();
            Answer::Status { status, headers: vec![("content-type", "application/json".to_owned())], body }
        };
        let line = request.head.lines().next().unwrap_or_default();
        let protocol = self.rules.protocol;
        if line != protocol.request_line() {
            return refuse(404, format!("no such place: {line}"));
        }
        if let Some((name, wanted)) = self.rules.key.as_deref().map(|key| protocol.key(key))
            && request.header(name) != Some(wanted.as_str())
        {
            return refuse(401, "wrong key".to_owned());
        }
        if request.header("anthropic-version") != protocol.version() {
            return refuse(400, "anthropic-version: missing or unknown".to_owned());
        }
        if request.header("content-type") != Some("application/json") {
            return refuse(415, "not JSON".to_owned());
        }
        let body = serde_json::from_slice(&request.body).map_err(|error| error.to_string());
        match body.and_then(|body| protocol.check(&body, &self.rules).map(|()| body)) {
            Ok(body) => {
                let body = Arc::new(body);
                self.bodies.lock().unwrap().push(request.body.clone());
                self.requests.send_modify(|requests| requests.push(Arc::clone(&body)));
                (self.answer)(&body)
            }
            Err(message) => refuse(400, message),
        }
    }
}

struct Connection<'a> {
    stream: TcpStream,
    protocol: Protocol,
    chunks: &'a watch::Sender<usize>,
    /// What came and is not used yet.
    read: Vec<u8>,
}

impl Connection<'_> {
    /// The next request; none at the end of the connection.
    async fn request(&mut self) -> Option<Received> {
        let end = loop {
            match self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.more().await?,
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).ok()?;
        let mut request = Received { head, body: Vec::new() };
        let length: usize = request.header("content-length")?.parse().ok()?;
        while self.read.len() < length {
            self.more().await?;
        }
        request.body = self.read.drain(..length).collect();
        Some(request)
    }

    async fn more(&mut self) -> Option<()> {
        let read = self.stream.read_buf(&mut self.read).await.ok()?;
        (read > 0).then_some(())
    }

    /// Sends an answer; none if the connection is over with it.
    async fn answer(&mut self, answer: Answer) -> Option<()> {
        match answer {
            Answer::Stream(events) => {
                self.steps(vec![Step::Bytes(self.protocol.frame(&events).into_bytes())]).await
            }
            Answer::Raw(steps) => self.steps(steps).await,
            Answer::Json(body) => {
                self.whole(200, &[("content-type", "application/json".to_owned())], &body.to_string()).await
            }
            Answer::Status { status, headers, body } => self.whole(status, &headers, &body).await,
            Answer::Hang => self.hang().await,
            Answer::Drop => None,
        }
    }

    async fn whole(&mut self, status: u16, headers: &[(&str, String)], body: &str) -> Option<()> {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head =
            format!("HTTP/1.1 {status} Said So\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
        self.write(head.as_bytes()).await
    }

    async fn steps(&mut self, steps: Vec<Step>) -> Option<()> {
        self.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .await?;
        for step in steps {
            match step {
                Step::Bytes(bytes) => {
                    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                    chunk.extend(bytes);
                    chunk.extend(b"\r\n");
                    self.write(&chunk).await?;
                    self.chunks.send_modify(|chunks| *chunks += 1);
                }
                // A client that goes away ends the wait.
                Step::Wait(time) => tokio::select! {
                    () = sleep(time) => {}
                    _ = self.hang() => return None,
                },
                Step::Hang => return self.hang().await,
                Step::Drop => return None,
            }
        }
        self.write(b"0\r\n\r\n").await
    }

    async fn write(&mut self, bytes: &[u8]) -> Option<()> {
        self.stream.write_all(bytes).await.ok()
    }

    /// Waits for the client to go away.
    async fn hang(&mut self) -> Option<()> {
        while self.more().await.is_some() {}
        None
    }
}
