//! The token that stands for its owner over TCP.
//!
//! It is kept in a file that nobody else may read, and compared in a time that does not depend on how much of it was right.
//! In memory there is only its hash.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Read, Write as _},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};

const FRESH_BYTES: usize = 32;
/// Shorter ones could be guessed, longer ones are some other file.
const LETTERS: std::ops::RangeInclusive<usize> = 16..=1024;
const READABLE_BY_OTHERS: u32 = 0o077;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("the token in {} can be read by other users; chmod 600 makes it private, but they may know it", .0.display())]
    Exposed(PathBuf),
    #[error("the token in {} belongs to another user", .0.display())]
    NotOurs(PathBuf),
    #[error("{} holds no token: want {} to {} letters without a space", .0.display(), LETTERS.start(), LETTERS.end())]
    Malformed(PathBuf),
    #[error("cannot {what} the token in {}", .path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// What a client must show. Cannot be printed.
#[derive(Clone)]
pub struct Token {
    digest: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Token(..)")
    }
}

impl Token {
    /// Reads the token that is kept in a file, which must be private.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        Self::open(path, File::open(path).map_err(failed("read", path))?)
    }

    /// Reads the token, or makes a fresh one where there is no file yet.
    pub fn read_or_make(path: &Path) -> Result<Self, TokenError> {
        match File::open(path) {
            Ok(file) => Self::open(path, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(path)?;
                Self::read(path)
            }
            Err(error) => Err(failed("read", path)(error)),
        }
    }

    fn open(path: &Path, file: File) -> Result<Self, TokenError> {
        let facts = file.metadata().map_err(failed("read", path))?;
        if !facts.is_file() {
            return Err(TokenError::Malformed(path.to_owned()));
        }
        if facts.permissions().mode() & READABLE_BY_OTHERS != 0 {
            return Err(TokenError::Exposed(path.to_owned()));
        }
        if ![rustix::process::geteuid().as_raw(), 0].contains(&facts.uid()) {
            return Err(TokenError::NotOurs(path.to_owned()));
        }
        let mut text = Vec::new();
        file.take(2 * *LETTERS.end() as u64).read_to_end(&mut text).map_err(failed("read", path))?;
        let token = text.trim_ascii();
        if !LETTERS.contains(&token.len()) || !token.iter().all(u8::is_ascii_graphic) {
            return Err(TokenError::Malformed(path.to_owned()));
        }
        Ok(Self { digest: Sha256::digest(token).into() })
    }

    /// Whether a client showed this token. Hashes are compared, so that the time taken says nothing of the token.
    pub(super) fn is(&self, shown: &[u8]) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        let different =
            self.digest.iter().zip(shown).fold(0, |different, (own, shown)| different | own ^ shown);
        std::hint::black_box(different) == 0
    }
}

/// Puts a fresh token in its place, whole; one that somebody else put there meanwhile stays.
fn make(path: &Path) -> Result<(), TokenError> {
    let mut bytes = [0; FRESH_BYTES];
    // So few bytes come whole or not at all.
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|error| failed("make", path)(error.into()))?;
    let text = bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    // A temporary file is made with mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed("write", path))?;
    file.write_all(format!("{text}\n").as_bytes())
        .and_then(|()| file.as_file().sync_all())
        .map_err(failed("write", path))?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed("write", path)(error.error)),
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TokenError {
    move |source| TokenError::Io { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    fn kept(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    #[test]
    fn a_fresh_token_is_private_long_and_stays_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::read_or_make(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim().len(), 64);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(token.is(text.trim().as_bytes()));
        Token::read_or_make(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_token_is_right_only_as_a_whole() {
        let (_folder, path) = kept("0123456789abcdef\n", 0o600);
        let token = Token::read(&path).unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in
            ["", "0", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0", "0123456789abcdef\n"]
        {
            assert!(!token.is(wrong.as_bytes()), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_that_others_may_read_is_refused() {
        for mode in [0o640, 0o604, 0o666, 0o620] {
            let (_folder, path) = kept("0123456789abcdef", mode);
            assert!(matches!(Token::read_or_make(&path), Err(TokenError::Exposed(_))), "{mode:o}");
        }
    }

    #[test]
    fn an_empty_short_or_odd_file_holds_no_token() {
        for text in ["", "\n", "short", "two words are not one", &"a".repeat(1025)] {
            let (_folder, path) = kept(text, 0o600);
            assert!(matches!(Token::read_or_make(&path), Err(TokenError::Malformed(_))), "{text:?}");
        }
    }
}
