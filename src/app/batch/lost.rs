//! Whether the results tell of ends that the journal does not know: then it has lost what came last.
//!
//! A write-ahead log that is gone or cut leaves a journal that is sound by itself. What stood in it is done already, and
//! must not be done again.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::history::History;
use crate::domain::id::RunId;

/// Tasks that an error names.
const MOST_NAMED: usize = 5;

/// What of a line tells whose end it is.
#[derive(Debug, Deserialize)]
struct End {
    id: String,
    run: RunId,
    attempt: u32,
}

/// The tasks whose ends only the results know, at most some of them by name, and how many they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) tasks: Vec<String>,
    pub(super) count: usize,
}

/// Compares the results in `out`, if there are any, with what is of record. Lines that are not whole tell nothing.
pub(super) async fn lost(out: PathBuf, history: &History) -> io::Result<Lost> {
    let ends = tokio::task::spawn_blocking(move || ends_in(&out)).await.map_err(io::Error::other)??;
    let mut lost = Lost::default();
    for end in ends.into_iter().filter(|end| is_lost(end, history)) {
        lost.count += 1;
        if lost.tasks.len() < MOST_NAMED {
            lost.tasks.push(end.id);
        }
    }
    Ok(lost)
}

fn is_lost(end: &End, history: &History) -> bool {
    history.latest(&end.id).is_none_or(|latest| {
        let is_it = latest.run == end.run;
        latest.attempt < end.attempt
            || is_it && latest.end.is_none()
            || !is_it && latest.attempt == end.attempt
    })
}

fn ends_in(out: &Path) -> io::Result<Vec<End>> {
    let file = match File::open(out) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let (mut reader, mut line, mut ends) = (BufReader::new(file), Vec::new(), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        ends.extend(serde_json::from_slice::<End>(&line));
        line.clear();
    }
    Ok(ends)
}
