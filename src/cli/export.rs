//! `herder export` and `herder import`: runs as files.

use std::{
    fs::File,
    io::{self, BufReader, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use tempfile::NamedTempFile;

use super::{
    Context, Exit, UsageError,
    args::FilterArgs,
    asking::{Source, source},
    folder,
    start::say,
};
use crate::{
    app::{
        state::{State, find},
        transfer::{Imported, export, import, read},
    },
    clock::SystemClock,
    domain::id::{RunId, Seq},
    store::{EventStore, StoreError},
};

pub(super) const EXPORT: &str = "Write runs to a file, every event as it is of record

One JSON object a line: a head, the events of the run, and a seal with their number and digest. With --all every run, or those \
that the filters name. They are the daemon's, or with --state those of a folder. What runs changed in workspaces of their own \
lies beside the log and is not in the file: `herder diff RUN > FILE` keeps it. With --all a run whose log is damaged is told of and \
left out; all others are written.";

pub(super) const EXPORT_AFTER: &str = "EXAMPLES
  herder export task-17 -o task-17.jsonl
  herder export --all --outcome failed --state out.jsonl.state | gzip > failed.jsonl.gz

EXIT CODES
  0  all that was asked for is written
  1  some is not: logs are damaged, or the file cannot be written
  2  bad usage, an unknown run, or no state folder
  5  no daemon answers, and --state names no folder
  6  a later version of herder wrote the folder";

pub(super) const IMPORT: &str = "Put the runs of an exported file into a state folder

The file is checked whole before anything is written: one that was damaged or cut short is refused. It is not authenticated: \
whoever can write it can make it say anything, so import files of people whom you trust. A run that is there already stays as it \
is, if it is the same; one that is there in part is completed. One that has not ended is held: a daemon over the folder goes on \
with it once it is resumed. Its calls that have no result are not made, and what was approved beforehand is asked about again: \
the policy and the people of here decide. What was at work on it elsewhere stays at work there. Nobody else may work in the \
folder meanwhile.";

pub(super) const IMPORT_AFTER: &str = "EXAMPLES
  herder import task-17.jsonl --state ~/archive
  gunzip < failed.jsonl.gz | herder import - --state ~/archive

EXIT CODES
  0  the runs of the file are in the folder, or were
  1  a run is there already and is not the same, or cannot be written
  2  the file is none, was changed or cut short, or is of a later version; or the folder is in use
  6  a later version of herder wrote the folder";

/// Flags of `herder export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// The run: its id, the beginning of one, or a task's id
    #[arg(value_name = "RUN", required_unless_present = "all", conflicts_with = "all")]
    pub run: Option<String>,
    /// All runs, or those that the filters name
    #[arg(long)]
    pub all: bool,
    /// Where to; - is stdout
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Flags of `herder import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// The file; - is stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Runs `herder export`.
pub(crate) async fn export_main(args: ExportArgs, context: Context) -> anyhow::Result<Exit> {
    let state = match source(&context).await? {
        Source::Folder(state) => state,
        // Its folder may be read beside it.
        Source::Daemon(_, status) => State::to_read(status.state.as_ref())?,
    };
    let (runs, damaged) = match &args.run {
        Some(name) => (vec![find(&*state.store, name).await?.run], Damaged::IsAnError),
        None => {
            let list = folder::list(&state, &args.filter, None).await?;
            let runs = list.runs.iter().filter_map(|run| run.id.parse().ok()).collect();
            (runs, Damaged::IsLeftOut)
        }
    };
    let export = Export { store: &*state.store, runs: &runs, damaged };
    let written = if args.output == Path::new("-") {
        export.write(io::BufWriter::new(io::stdout())).await
    } else {
        export.to_file(&args.output).await
    };
    let unknown = if args.run.is_none() { state.rowless().await? } else { Vec::new() };
    state.close().await;
    for name in &unknown {
        say(&format!("{name}: left out: its row is lost; `herder doctor STATE --repair` puts it back"));
    }
    match written {
        // Whoever reads it has had enough.
        Err(error) if is_closed_pipe(&error) => Ok(Exit::Done),
        Ok(written) if written < runs.len() || !unknown.is_empty() => Ok(Exit::NotDone),
        written => written.map(|_| Exit::Done),
    }
}

/// What becomes of a run whose log is damaged.
#[derive(Clone, Copy)]
enum Damaged {
    IsAnError,
    IsLeftOut,
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Runs that are to be written.
struct Export<'a> {
    store: &'a dyn EventStore,
    runs: &'a [RunId],
    damaged: Damaged,
}

impl Export<'_> {
    /// Puts a whole file in its place, or none, and gives the number of runs in it.
    async fn to_file(&self, path: &Path) -> anyhow::Result<usize> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let cannot = || format!("{}: cannot be written", path.display());
        let file = NamedTempFile::new_in(folder).with_context(cannot)?;
        let written = self.write(io::BufWriter::new(file.as_file())).await?;
        file.as_file().sync_all().with_context(cannot)?;
        file.persist(path).with_context(cannot)?;
        say(&format!("{}: runs {written}", path.display()));
        Ok(written)
    }

    async fn write(&self, mut out: impl Write) -> anyhow::Result<usize> {
        let mut written = 0;
        for run in self.runs {
            match (self.store.read(*run, Seq::START).await, self.damaged) {
                (Err(error @ StoreError::Damaged { .. }), Damaged::IsLeftOut) => {
                    let error = anyhow::Error::from(error);
                    say(&format!("run {run}: left out: {error:#}"));
                }
                (log, _) => {
                    export(*run, &log?, &mut out)?;
                    written += 1;
                }
            }
        }
        out.flush()?;
        Ok(written)
    }
}

/// Runs `herder import`.
pub(crate) async fn import_main(args: ImportArgs, context: Context) -> anyhow::Result<Exit> {
    let name = args.file.display().to_string();
    let refused = |error: crate::app::transfer::ImportError| UsageError(format!("{name}: {error}"));
    let runs = if args.file == Path::new("-") {
        read(io::stdin().lock()).map_err(refused)?
    } else {
        let file =
            File::open(&args.file).map_err(|error| UsageError(format!("{name}: cannot be read: {error}")))?;
        read(BufReader::new(file)).map_err(refused)?
    };
    let folder = context.state_folder()?;
    let state = State::to_write(&folder, context.config.store.durability)?;
    let place = folder.display();
    for exported in &runs {
        let run = exported.run;
        match import(&*state.store, exported, &SystemClock).await? {
            Imported::Ended => say(&format!("run {run}: imported into {place}")),
            Imported::Held => say(&format!(
                "run {run}: imported into {place}; it has not ended, and is held until it is resumed"
            )),
            Imported::Unchanged => say(&format!("run {run}: unchanged, it was in {place} already")),
        }
    }
    state.close().await;
    Ok(Exit::Done)
}
