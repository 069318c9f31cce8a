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
        isolation,
        state::{State, find},
        transfer::{Imported, export, import, read},
    },
    clock::SystemClock,
    domain::id::{RunId, Seq},
    store::EventStore,
};

pub(super) const EXPORT: &str = "Write runs to a file, every event as it is of record

One JSON object a line: a head, the events of the run, and a seal with their number and digest. With --all every run, or those \
that the filters name. They are the daemon's, or with --state those of a folder. What runs changed in workspaces of their own \
lies beside the log and is not in the file: `herder diff RUN > FILE` keeps it.";

pub(super) const EXPORT_AFTER: &str = "EXAMPLES
  herder export task-17 -o task-17.jsonl
  herder export --all --outcome failed --state out.jsonl.state | gzip > failed.jsonl.gz";

pub(super) const IMPORT: &str = "Put the runs of an exported file into a state folder

The file is checked whole before anything is written: one that was damaged or cut short is refused. It is not authenticated: \
whoever can write it can make it say anything, so import files of people whom you trust. A run that is there already stays as it \
is, if it is the same; one that is there in part is completed. One that has not ended is held: a daemon over the folder goes on \
with it once it is resumed. Its calls that have no result are not made, and what was approved beforehand is asked about again: \
the policy and the people of here decide. What was at work on it elsewhere stays at work there. Nobody else may work in the \
folder meanwhile.";

pub(super) const IMPORT_AFTER: &str = "EXAMPLES
  herder import task-17.jsonl --state ~/archive
  gunzip < failed.jsonl.gz | herder import - --state ~/archive";

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
    let runs = match &args.run {
        Some(name) => vec![find(&*state.store, name).await?.run],
        None => {
            let list = folder::list(&*state.store, &isolation::patches(&state), &args.filter, None).await?;
            list.runs.iter().filter_map(|run| run.id.parse().ok()).collect()
        }
    };
    let written = if args.output == Path::new("-") {
        write(&*state.store, &runs, io::BufWriter::new(io::stdout())).await
    } else {
        to_file(&*state.store, &runs, &args.output).await
    };
    state.close().await;
    match written {
        // Whoever reads it has had enough.
        Err(error) if is_closed_pipe(&error) => Ok(Exit::Done),
        written => written.map(|()| Exit::Done),
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Puts a whole file in its place, or none.
async fn to_file(store: &dyn EventStore, runs: &[RunId], path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let cannot = || format!("{}: cannot be written", path.display());
    let file = NamedTempFile::new_in(folder).with_context(cannot)?;
    write(store, runs, io::BufWriter::new(file.as_file())).await.with_context(cannot)?;
    file.as_file().sync_all().with_context(cannot)?;
    file.persist(path).with_context(cannot)?;
    say(&format!("{}: runs {}", path.display(), runs.len()));
    Ok(())
}

async fn write(store: &dyn EventStore, runs: &[RunId], mut out: impl Write) -> anyhow::Result<()> {
    for run in runs {
        export(*run, &store.read(*run, Seq::START).await?, &mut out)?;
    }
    Ok(out.flush()?)
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
    let state = State::to_write(&context.state_folder()?, context.config.store.durability)?;
    for exported in &runs {
        let run = exported.run;
        match import(&*state.store, exported, &SystemClock).await? {
            Imported::Ended => say(&format!("run {run}: imported")),
            Imported::Held => {
                say(&format!("run {run}: imported; it has not ended, and is held until it is resumed"))
            }
            Imported::Unchanged => say(&format!("run {run}: unchanged, it was here already")),
        }
    }
    state.close().await;
    Ok(Exit::Done)
}
