//! Clients that are slow, silent, endless, too many or gone: each is dealt with, and nobody else notices.

use std::{
    io,
    os::unix::fs::FileTypeExt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    routing::{get, post},
};
use futures_util::{StreamExt, stream};
use herder::{
    daemon::server::{Ending, Limits},
    tool::process::raise_open_files,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Notify, mpsc},
};

use crate::harness::{
    Part, Running, ask, assert_refused, connect, exchange, named, request, rest, say, soon, start, who,
};

const SHORT: Duration = Duration::from_millis(300);

/// Tells of its end.
struct Told(mpsc::UnboundedSender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

async fn assert_served(server: &Running) {
    let answer = ask(&server.path, "/who").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_in_time_is_cut_off() {
    let server = start(who(), Limits { header_time: SHORT, ..Limits::default() });
    for sent in ["", "GET /who HT", "GET /who HTTP/1.1\r\nhost: a\r\n"] {
        let answer = exchange(connect(&server.path).await, sent).await;
        assert!(!answer.contains(" 200 "), "{answer}");
    }
}

#[tokio::test]
async fn a_connection_that_is_not_used_again_is_closed() {
    // Long enough for the head, too, which comes at once.
    let server = start(who(), Limits { header_time: SHORT * 10, ..Limits::default() });
    let kept = "GET /who HTTP/1.1\r\nhost: a\r\n\r\n";
    let answer = exchange(connect(&server.path).await, kept).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_head_without_end_is_refused_before_much_of_it_is_taken() {
    let server = start(who(), Limits::default());
    for lines in ["a".repeat(1 << 20), "x: y\r\n".repeat(1 << 17)] {
        let mut stream = connect(&server.path).await;
        soon(stream.write_all(b"GET /who HTTP/1.1\r\nx: ")).await.unwrap();
        let mut taken = 0;
        while taken < 50 << 20 {
            match soon(stream.write(lines.as_bytes())).await {
                Ok(count) => taken += count,
                Err(_) => break,
            }
        }
        assert!(taken < 2 << 20, "{taken} bytes were taken");
        let answer = rest(stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    assert_served(&server).await;
}

#[tokio::test]
async fn what_is_no_http_is_answered_as_a_bad_request() {
    let server = start(who(), Limits::default());
    for sent in ["NONSENSE\r\n\r\n", "GET /who HTTP/1.1\r\nno colon\r\n\r\n", "\0\0\0\0\r\n\r\n"] {
        let answer = exchange(connect(&server.path).await, sent).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    assert_served(&server).await;
}

#[tokio::test]
async fn a_body_that_stops_coming_is_answered_with_a_time_out() {
    let router = Router::new().route("/put", post(|body: Bytes| async move { body.len().to_string() }));
    let server = start(router, Limits { body_stall: SHORT, ..Limits::default() });
    let whole = "POST /put HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody";
    let answer = exchange(connect(&server.path).await, whole).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with('4'), "{answer}");
    let part = exchange(connect(&server.path).await, &whole[..whole.len() - 1]).await;
    assert_refused(&part, 408, "timeout");
}

#[tokio::test]
async fn a_client_that_is_done_sending_still_gets_its_answer() {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (in_route, let_go) = (asked.clone(), go.clone());
    let slow = move || async move {
        in_route.notify_one();
        let_go.notified().await;
        "late"
    };
    let server = start(Router::new().route("/slow", get(slow)), Limits::default());
    let mut stream = connect(&server.path).await;
    stream.write_all(request("/slow").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    soon(asked.notified()).await;
    go.notify_one();
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("late"), "{answer}");
}

#[tokio::test]
async fn what_a_client_asked_for_that_has_gone_is_given_up() {
    let (told, mut ends) = mpsc::unbounded_channel();
    let asked = Arc::new(Notify::new());
    let in_route = asked.clone();
    let endless = move || async move {
        let _told = Told(told.clone());
        in_route.notify_one();
        std::future::pending::<()>().await;
    };
    let server = start(Router::new().route("/wait", get(endless)), Limits::default());
    let mut stream = connect(&server.path).await;
    stream.write_all(request("/wait").as_bytes()).await.unwrap();
    soon(asked.notified()).await;
    drop(stream);
    soon(ends.recv()).await.unwrap();
}

#[tokio::test]
async fn a_route_that_panics_is_an_error_of_this_request_alone() {
    let broken = || async { panic!("on purpose") as &'static str };
    let server = start(who().route("/broken", get(broken)), Limits::default());
    assert_refused(&ask(&server.path, "/broken").await, 500, "internal");
    let late =
        || async { Body::from_stream(stream::once(async { panic!("on purpose") as io::Result<Bytes> })) };
    let server = start(who().route("/late", get(late)), Limits::default());
    ask(&server.path, "/late").await;
    assert_served(&server).await;
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_and_the_next_is_served_once_one_has_ended() {
    raise_open_files();
    let server = start(who(), Limits { header_time: Duration::from_secs(300), ..Limits::default() });
    let mut idle = Vec::new();
    for _ in 0..Limits::default().connections {
        idle.push(connect(&server.path).await);
    }
    assert_refused(&ask(&server.path, "/who").await, 503, "too_many_connections");
    idle.pop();
    let served = async { while !ask(&server.path, "/who").await.starts_with("HTTP/1.1 200 ") {} };
    soon(served).await;
    // More than are told so: these wait until there is room.
    idle.push(connect(&server.path).await);
    for _ in 0..200 {
        idle.push(connect(&server.path).await);
    }
    let mut waiting = connect(&server.path).await;
    waiting.write_all(request("/who").as_bytes()).await.unwrap();
    drop(idle);
    let answer = rest(waiting).await;
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    soon(async { while !ask(&server.path, "/who").await.starts_with("HTTP/1.1 200 ") {} }).await;
}

#[tokio::test]
async fn a_reader_that_stops_is_dropped_while_another_is_served() {
    let (told, mut ends) = mpsc::unbounded_channel();
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let endless = move || async move {
        let told = Told(told.clone());
        Body::from_stream(stream::repeat(Bytes::from(vec![b'x'; 1024])).map(move |piece| {
            let _ = &told;
            count.fetch_add(piece.len(), Relaxed);
            io::Result::Ok(piece)
        }))
    };
    let router = who().route("/endless", get(endless));
    let server = start(router, Limits { write_stall: SHORT, ..Limits::default() });
    let mut stalled = connect(&server.path).await;
    stalled.write_all(request("/endless").as_bytes()).await.unwrap();
    stalled.read_exact(&mut [0; 1024]).await.unwrap();
    let others = async {
        while ends.try_recv().is_err() {
            assert_served(&server).await;
        }
    };
    soon(others).await;
    let made = made.load(Relaxed);
    assert!(made < 4 << 20, "{made} bytes were made for a client that reads none");
}

#[tokio::test]
async fn at_the_end_what_is_under_way_is_answered_and_streams_are_told() {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (in_route, let_go) = (asked.clone(), go.clone());
    let slow = move || async move {
        in_route.notify_one();
        let_go.notified().await;
        "done"
    };
    let follow = |Extension(ending): Extension<Ending>| async move {
        let first = stream::once(async { io::Result::Ok(Bytes::from("first;")) });
        let last = stream::once(async move {
            ending.token().cancelled().await;
            io::Result::Ok(Bytes::from("last;"))
        });
        Body::from_stream(first.chain(last))
    };
    let server =
        start(Router::new().route("/slow", get(slow)).route("/follow", get(follow)), Limits::default());
    let (mut asking, mut following) = (connect(&server.path).await, connect(&server.path).await);
    let idle = connect(&server.path).await;
    asking.write_all(request("/slow").as_bytes()).await.unwrap();
    soon(asked.notified()).await;
    following.write_all(request("/follow").as_bytes()).await.unwrap();
    let mut heard = String::new();
    while !heard.contains("first;") {
        let mut piece = [0; 512];
        let count = soon(following.read(&mut piece)).await.unwrap();
        heard.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    server.ending.cancel();
    assert!(rest(following).await.contains("last;"));
    assert_eq!(rest(idle).await, "");
    go.notify_one();
    assert!(rest(asking).await.ends_with("done"));
    soon(server.task).await.unwrap();
    assert!(!server.path.exists());
}

#[tokio::test]
async fn at_the_end_what_does_not_come_to_one_is_cut_off() {
    let asked = Arc::new(Notify::new());
    let in_route = asked.clone();
    let endless = move || async move {
        in_route.notify_one();
        std::future::pending::<()>().await;
    };
    let router = Router::new().route("/wait", get(endless));
    let server = start(router, Limits { grace: SHORT, ..Limits::default() });
    let mut stream = connect(&server.path).await;
    stream.write_all(request("/wait").as_bytes()).await.unwrap();
    soon(asked.notified()).await;
    server.ending.cancel();
    soon(server.task).await.unwrap();
    assert_eq!(rest(stream).await, "");
}

#[tokio::test]
#[ignore = "a part of another test"]
async fn part_with_few_files() {
    let server = start(who(), Limits::default());
    say(&format!("at {}", server.path.display()));
    let _ = tokio::task::spawn_blocking(crate::harness::wait_for_the_end).await;
}

#[tokio::test]
async fn a_server_that_has_no_more_files_goes_on_once_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let mut part = Part::start("abuse::part_with_few_files", "ulimit -n 48;", |command| {
        command.env("TMPDIR", folder.path());
    });
    let path = part.hear_after("at ");
    assert!(std::fs::metadata(&path).unwrap().file_type().is_socket());
    let place = named(path.as_ref());
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(connect(place.path()).await);
    }
    // The last of them waits for a file that there is none of.
    let last = idle.len() - 1;
    idle[last].write_all(request("/who").as_bytes()).await.unwrap();
    let waiting = idle.pop().unwrap();
    drop(idle);
    let answer = rest(waiting).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
