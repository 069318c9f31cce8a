//! One line a task: an OUT in which some have more keeps the last one of each.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
    sync::Arc,
};

use anyhow::Context as _;

use super::{follow::ResultHead, real};
use crate::app::batch::Results;

/// Makes `out` anew from the last line of each task in it. With `in_order` they have the order of `places`, else that of
/// the file.
pub(super) fn keep(out: &Path, places: &BTreeMap<Arc<str>, usize>, in_order: bool) -> anyhow::Result<()> {
    let unread = || format!("{}: cannot be read", out.display());
    let mut latest = BTreeMap::new();
    for (number, line) in (0..).zip(BufReader::new(File::open(out).with_context(unread)?).split(b'\n')) {
        let mut line = line.with_context(unread)?;
        let place = ResultHead::of(&line).and_then(|head| places.get(head.id()).copied());
        if let Some(place) = place {
            line.push(b'\n');
            latest.insert(place, (if in_order { place } else { number }, line));
        }
    }
    let mut lines: Vec<_> = latest.into_values().collect();
    lines.sort_unstable_by_key(|(at, _)| *at);
    Results::to_file(&real(out), lines.into_iter().map(|(_, line)| line))?;
    Ok(())
}
