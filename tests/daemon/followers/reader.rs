//! A client that follows events over a socket of its own, and reads only when it is told to.

use std::{collections::VecDeque, path::Path};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

/// An event as it was sent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) id: Option<u64>,
    pub(super) name: String,
    pub(super) data: String,
}

/// Why a reader is done.
#[derive(Debug)]
pub(super) enum Over {
    /// It has what it wanted.
    Enough,
    /// It was told that it was too slow.
    Gap,
    /// The daemon closed the connection.
    CutOff,
}

/// What a reader had.
#[derive(Debug)]
pub(super) struct Had {
    pub(super) ids: Vec<u64>,
    /// Runs of which it had the end.
    pub(super) ends: usize,
    pub(super) over: Over,
}

pub(super) struct Reader {
    stream: UnixStream,
    text: Vec<u8>,
    ready: VecDeque<Sent>,
}

impl Reader {
    /// Follows `path` from where another reader ended. The older protocol has the answer come as it is, in no pieces.
    pub(super) async fn open(socket: &Path, path: &str, after: Option<u64>) -> Self {
        let mut stream = UnixStream::connect(socket).await.unwrap();
        let after = after.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.0\r\nhost: herder\r\n{after}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).await.unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.0 200 "), "{}", String::from_utf8_lossy(&head));
        Self { stream, text: Vec::new(), ready: VecDeque::new() }
    }

    /// The next event; nothing once the connection is closed.
    pub(super) async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some(sent) = self.ready.pop_front() {
                return Some(sent);
            }
            let known = self.text.len().saturating_sub(1);
            match self.stream.read_buf(&mut self.text).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => self.cut(known),
            }
        }
    }

    /// Cuts off what is whole; nothing before `known` ends an event.
    fn cut(&mut self, mut known: usize) {
        let mut begin = 0;
        while let Some(end) = self.text[known..].windows(2).position(|two| two == b"\n\n") {
            let end = known + end;
            self.ready.extend(sent(std::str::from_utf8(&self.text[begin..end]).unwrap()));
            begin = end + 2;
            known = begin;
        }
        self.text.drain(..begin);
    }

    /// Reads until so many runs have ended, or it cannot go on.
    pub(super) async fn until(mut self, enough: usize) -> Had {
        let (mut ids, mut ends) = (Vec::new(), 0);
        while ends < enough {
            let Some(sent) = self.next().await else { return Had { ids, ends, over: Over::CutOff } };
            if sent.name == "gap" {
                assert!(sent.data.contains(r#""code":"slow_reader""#), "{}", sent.data);
                return Had { ids, ends, over: Over::Gap };
            }
            ids.extend(sent.id);
            ends += usize::from(sent.name == "run_end");
        }
        Had { ids, ends, over: Over::Enough }
    }
}

/// Reads one event; a sign of life is none.
fn sent(text: &str) -> Option<Sent> {
    let mut sent = Sent { id: None, name: String::new(), data: String::new() };
    for line in text.lines() {
        match line.split_once(": ")? {
            ("id", id) => sent.id = Some(id.parse().unwrap()),
            ("event", name) => name.clone_into(&mut sent.name),
            ("data", data) => data.clone_into(&mut sent.data),
            _ => return None,
        }
    }
    Some(sent)
}
