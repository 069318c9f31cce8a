//! The socket's file: who may open it, what it may replace, and what is left of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, Permissions},
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        net::{UnixListener, UnixStream},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    sync::{Barrier, mpsc},
    thread,
};

use herder::daemon::server::{
    Access, Limits, Listener, Role, serve,
    socket::{SocketError, SocketPath, bind, check_folder},
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::harness::{Part, assert_refused, named, own, request, say, wait_for_the_end, who};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sock");
    (folder, path)
}

/// Leaves a socket that nobody listens on, as a process does that is killed.
fn stale(path: &Path) {
    drop(UnixListener::bind(path).unwrap());
}

#[test]
#[ignore = "a part of other tests"]
fn part_that_binds() {
    let _bound = bind(&own(Path::new(&std::env::var_os("DIR").unwrap())), None).unwrap();
    say("bound");
    wait_for_the_end();
}

fn binding(dir: &Path, shell: &str) -> Part {
    Part::start("socket::part_that_binds", shell, |command| {
        command.env("DIR", dir);
    })
}

#[test]
fn without_any_umask_the_socket_is_private_whenever_one_looks() {
    let folder = tempfile::tempdir().unwrap();
    let path = own(folder.path()).path().to_owned();
    let mut part = binding(folder.path(), "umask 000;");
    let (tell, seen) = mpsc::channel();
    let looking = thread::spawn({
        let path = path.clone();
        move || {
            let mut modes = BTreeSet::new();
            // Until it is gone again, which it is at the end.
            while modes.is_empty() || path.exists() {
                modes.extend(fs::symlink_metadata(&path).ok().map(|facts| facts.mode() & 0o7777));
                if !modes.is_empty() {
                    let _ = tell.send(());
                }
            }
            modes
        }
    });
    part.hear("bound");
    seen.recv().unwrap();
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_file_name("herder.sock.lock")), 0o600);
    part.all();
    assert_eq!(looking.join().unwrap(), BTreeSet::from([0o600]));
}

#[test]
fn after_a_kill_the_next_start_replaces_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let place = own(folder.path());
    let mut part = binding(folder.path(), "");
    part.hear("bound");
    part.child.kill().unwrap();
    part.child.wait().unwrap();
    assert!(place.path().exists());
    let bound = bind(&place, None).unwrap();
    UnixStream::connect(place.path()).unwrap();
    drop(bound);
    assert!(!place.path().exists());
}

#[test]
fn a_second_daemon_is_refused_by_the_first_ones_number_and_does_it_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let place = own(folder.path());
    let mut part = binding(folder.path(), "");
    part.hear("bound");
    let before = fs::metadata(place.path()).unwrap().ino();
    let error = bind(&place, None).unwrap_err();
    let first = i32::try_from(part.child.id()).unwrap();
    assert!(matches!(error, SocketError::AlreadyRunning { pid: Some(pid), .. } if pid == first), "{error}");
    assert!(error.to_string().contains(&first.to_string()), "{error}");
    assert_eq!(fs::metadata(place.path()).unwrap().ino(), before);
    UnixStream::connect(place.path()).unwrap();
}

#[test]
fn of_several_that_start_at_once_over_a_stale_socket_one_wins() {
    let (_folder, path) = folder();
    let place = named(&path);
    // The moment in which two could be at odds is short.
    for _ in 0..500 {
        stale(&path);
        let together = Barrier::new(8);
        let results: Vec<_> = thread::scope(|scope| {
            let start = || {
                together.wait();
                bind(&place, None)
            };
            let starting: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            starting.into_iter().map(|start| start.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        assert!(lost.iter().all(|lost| matches!(lost, Err(SocketError::AlreadyRunning { .. }))), "{lost:?}");
        UnixStream::connect(&path).unwrap();
    }
}

#[test]
fn what_is_not_a_socket_is_never_removed() {
    let (folder, path) = folder();
    let other = folder.path().join("other.sock");
    stale(&other);
    let refused = |what: &str| {
        let error = bind(&named(&path), None).unwrap_err();
        assert!(matches!(error, SocketError::NotASocket { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    fs::write(&path, "dear").unwrap();
    refused("a regular file");
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear");
    fs::remove_file(&path).unwrap();
    symlink(&other, &path).unwrap();
    refused("a symbolic link");
    assert!(path.is_symlink() && other.exists());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused("a folder");
    assert!(path.is_dir());
}

#[test]
fn a_socket_that_took_the_place_of_ours_stays_when_we_end() {
    let (_folder, path) = folder();
    let bound = bind(&named(&path), None).unwrap();
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(bound);
    UnixStream::connect(&path).unwrap();
}

fn unsafe_folder(place: &SocketPath) -> String {
    let told = check_folder(place).unwrap_err();
    assert!(matches!(told, SocketError::UnsafeFolder { .. }), "{told}");
    let error = bind(place, None).unwrap_err();
    assert_eq!(error.to_string(), told.to_string());
    assert!(!place.path().exists());
    error.to_string()
}

#[test]
fn a_folder_of_its_own_that_others_could_have_prepared_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let leaf = dir.path().join("herder");
    fs::create_dir(&leaf).unwrap();
    for open in [0o777, 0o1777, 0o770] {
        set_mode(&leaf, open);
        assert!(unsafe_folder(&own(dir.path())).contains("written to by other users"));
        assert_eq!(mode(&leaf), open);
    }
    fs::remove_dir(&leaf).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), &leaf).unwrap();
    assert!(unsafe_folder(&own(dir.path())).contains("symbolic link"));
    fs::remove_file(&leaf).unwrap();
    fs::write(&leaf, "").unwrap();
    assert!(bind(&own(dir.path()), None).is_err());
}

#[test]
fn a_folder_or_a_lock_that_belongs_to_somebody_else_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (dir, path) = folder();
    fs::create_dir(dir.path().join("herder")).unwrap();
    std::os::unix::fs::chown(dir.path().join("herder"), Some(65534), None).unwrap();
    assert!(unsafe_folder(&own(dir.path())).contains("another user"));
    let lock = dir.path().join("s.sock.lock");
    fs::write(&lock, "").unwrap();
    std::os::unix::fs::chown(&lock, Some(65534), None).unwrap();
    assert!(matches!(bind(&named(&path), None), Err(SocketError::ForeignLock { .. })));
    std::os::unix::fs::chown(dir.path(), Some(65534), None).unwrap();
    assert!(unsafe_folder(&named(&path)).contains("another user"));
}

#[test]
fn a_named_folder_is_left_as_it_is_and_refused_only_if_others_could_replace_the_socket() {
    let (dir, path) = folder();
    for fine in [0o755, 0o1777] {
        set_mode(dir.path(), fine);
        drop(bind(&named(&path), None).unwrap());
        assert_eq!(mode(dir.path()), fine);
    }
    set_mode(dir.path(), 0o777);
    assert!(unsafe_folder(&named(&path)).contains("sticky"));
    assert_eq!(mode(dir.path()), 0o777);
}

#[test]
fn with_a_group_its_members_may_pass_and_connect_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let group = rustix::process::getegid().as_raw();
    let place = own(dir.path());
    let _bound = bind(&place, Some(group)).unwrap();
    assert_eq!((mode(place.path()), fs::metadata(place.path()).unwrap().gid()), (0o660, group));
    assert_eq!(mode(place.path().parent().unwrap()), 0o710);
}

#[test]
#[ignore = "a part of other tests"]
fn part_that_asks() {
    let mut stream = UnixStream::connect(std::env::var_os("SOCKET").unwrap()).unwrap();
    stream.write_all(request("/who").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    say(&answer);
}

/// What another user is answered, or for want of the power to be one, this user at another's daemon.
async fn asked_by_another(own: Access) -> String {
    let root = rustix::process::geteuid().is_root();
    let me = rustix::process::geteuid().as_raw();
    let access = if root { own } else { Access { owner: me + 1, ..own } };
    let (dir, path) = folder();
    let bound = bind(&named(&path), None).unwrap();
    set_mode(dir.path(), 0o755);
    set_mode(&path, 0o666);
    let ending = CancellationToken::new();
    let listeners = vec![Listener::bound(bound).unwrap()];
    let serving = tokio::spawn(serve(who(), access, Limits::default(), listeners, ending.clone()));
    let answer = tokio::task::spawn_blocking(move || {
        // Where this program is, another user may not be let in.
        let program = dir.path().join("part");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        set_mode(&program, 0o755);
        let part = Part::start_as(&program, "socket::part_that_asks", "", |command| {
            command.env("SOCKET", path);
            if root {
                command.uid(65534);
            }
        });
        part.all()
    });
    let answer = answer.await.unwrap();
    ending.cancel();
    serving.await.unwrap();
    answer[answer.find("HTTP/1.1").unwrap_or(0)..].split("\ntest ").next().unwrap().to_owned()
}

#[tokio::test]
async fn another_user_who_gets_as_far_as_the_socket_is_refused() {
    let answer = asked_by_another(Access::own()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_refused(&format!("{head}\r\n\r\n{}", body.lines().next().unwrap()), 403, "forbidden");
}

#[tokio::test]
async fn another_user_who_has_a_role_is_known_by_it() {
    let me = rustix::process::geteuid().as_raw();
    let roles = BTreeMap::from([(65534, Role::Viewer), (me, Role::Viewer)]);
    let answer = asked_by_another(Access { roles, ..Access::own() }).await;
    assert!(answer.contains(r#""role":"Viewer""#), "{answer}");
}
