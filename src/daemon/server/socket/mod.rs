//! Where the daemon's socket is, and why it cannot be there.
//!
//! The daemon and its clients find the place by the same rule, which depends on its arguments alone. Knows nothing of
//! what is said over the socket.

mod bind;
mod folder;
mod group;

use std::{
    env, io,
    path::{Path, PathBuf},
};

pub use bind::{Bound, SocketFile, bind};
pub use folder::check_folder;
pub use group::group_id;

/// What an address of a Unix socket has room for, without the zero that ends it.
const MAX_BYTES: usize = 107;

/// The folder of herder's own in which the socket is, unless a person names another place.
const LEAF: &str = "herder";

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error(
        "the socket's path is {bytes} bytes long, and {MAX_BYTES} is the most that the system takes: {}; \
         --socket names a shorter one", .path.display()
    )]
    TooLong { path: PathBuf, bytes: usize },
    #[error("a daemon is already running on {}{}", .path.display(), .pid.map(|pid| format!(", as process {pid}")).unwrap_or_default())]
    AlreadyRunning { path: PathBuf, pid: Option<i32> },
    #[error("{} is {what} and no socket, so it is left alone; --socket names another place", .path.display())]
    NotASocket { path: PathBuf, what: &'static str },
    #[error("the socket's folder {} {why}; the socket would not be safe in it", .path.display())]
    UnsafeFolder { path: PathBuf, why: &'static str },
    #[error("{} belongs to another user, who could keep a daemon from starting with it", .path.display())]
    ForeignLock { path: PathBuf },
    #[error("there is no group {name:?} in /etc/group; one that is kept elsewhere is named by its number")]
    NoSuchGroup { name: String },
    #[error("cannot {what} {}", .path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl SocketError {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }
}

/// Where a socket is, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPath {
    path: PathBuf,
    /// Whether a person chose the folder, which is then theirs to look after.
    named: bool,
}

impl SocketPath {
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            Some(_) | None => Path::new("."),
        }
    }
}

/// What of this process and its system has a say in where the socket is.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    pub uid: u32,
    /// The folder that systemd makes for a user who is logged in, if there is one.
    pub run_user: Option<PathBuf>,
    pub temp: PathBuf,
}

impl Surroundings {
    pub fn of_this_process() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let run_user = PathBuf::from(format!("/run/user/{uid}"));
        Self {
            runtime_dir: env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
            uid,
            run_user: run_user.is_dir().then_some(run_user),
            temp: env::temp_dir(),
        }
    }
}

/// Says where the socket is: as named, by `--socket` or `HERDER_SOCKET`, or else where this user's things of the session are.
pub fn locate(named: Option<&Path>, around: &Surroundings) -> Result<SocketPath, SocketError> {
    let named = named.filter(|path| !path.as_os_str().is_empty());
    let path = match named {
        Some(path) => path.to_owned(),
        None => own_folder(around).join("herder.sock"),
    };
    let bytes = path.as_os_str().len();
    if bytes > MAX_BYTES {
        return Err(SocketError::TooLong { path, bytes });
    }
    Ok(SocketPath { path, named: named.is_some() })
}

fn own_folder(around: &Surroundings) -> PathBuf {
    // A relative one is to be ignored, says the specification that names the variable.
    let runtime_dir = around.runtime_dir.as_ref().filter(|dir| dir.is_absolute());
    match runtime_dir.or(around.run_user.as_ref()) {
        Some(dir) => dir.join(LEAF),
        None => around.temp.join(format!("{LEAF}-{}", around.uid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        Surroundings {
            runtime_dir: Some("/run/user/7".into()),
            uid: 7,
            run_user: Some("/run/user/7".into()),
            temp: "/tmp".into(),
        }
    }

    fn found(named: Option<&str>, around: &Surroundings) -> String {
        locate(named.map(Path::new), around).unwrap().path().display().to_string()
    }

    #[test]
    fn a_named_place_comes_before_every_other() {
        assert_eq!(found(Some("/a/b.sock"), &around()), "/a/b.sock");
        assert_eq!(found(Some(""), &around()), "/run/user/7/herder/herder.sock");
    }

    #[test]
    fn the_runtime_folder_comes_before_the_one_of_systemd_and_that_before_the_temp_folder() {
        let elsewhere = Surroundings { runtime_dir: Some("/x".into()), ..around() };
        assert_eq!(found(None, &elsewhere), "/x/herder/herder.sock");
        let unset = Surroundings { runtime_dir: None, ..around() };
        assert_eq!(found(None, &unset), "/run/user/7/herder/herder.sock");
        let neither = Surroundings { runtime_dir: None, run_user: None, ..around() };
        assert_eq!(found(None, &neither), "/tmp/herder-7/herder.sock");
    }

    #[test]
    fn a_relative_or_empty_runtime_folder_counts_as_none() {
        for dir in ["", "run"] {
            let odd = Surroundings { runtime_dir: Some(dir.into()), run_user: None, ..around() };
            assert_eq!(found(None, &odd), "/tmp/herder-7/herder.sock");
        }
    }

    #[test]
    fn the_longest_path_is_taken_and_one_byte_more_is_refused_with_both_numbers() {
        let longest = format!("/{}", "a".repeat(MAX_BYTES - 1));
        assert_eq!(found(Some(&longest), &around()), longest);
        let text = locate(Some(Path::new(&format!("{longest}a"))), &around()).unwrap_err().to_string();
        assert!(text.contains("108 bytes") && text.contains("107"), "{text}");
    }

    #[test]
    fn a_letter_of_several_bytes_counts_as_several() {
        let path = format!("/{}", "ä".repeat(54));
        let error = locate(Some(Path::new(&path)), &around()).unwrap_err();
        assert!(matches!(error, SocketError::TooLong { bytes: 109, .. }), "{error}");
    }
}
