//! `herder apply`: takes what runs changed in workspaces of their own over into a tree.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{
    Context, Exit, UsageError,
    patches::{RunPatch, patches},
    start::say,
};
use crate::tool::{
    isolate::apply::{self, How, Patch, Relative},
    process::ProcessRunner,
};

pub(super) const ABOUT: &str = "Apply what runs changed to your own tree

The runs had workspaces of their own (--isolate worktree or copy), and have ended. Their patches are applied in the order in \
which they are named, to the folder that their tasks name: all of them, or none if one does not fit. Nothing is committed.";

pub(super) const AFTER: &str = "EXAMPLES
  herder apply task-17 --state out.jsonl.state
  herder apply task-17 task-18 --check                       would both fit, one after the other?
  herder apply task-17 --to ~/other-checkout
  herder apply task-17 --3way                                merge where lines have moved; conflicts get markers

EXIT CODES
  0  they are applied, or with --check would fit
  1  one does not fit, and nothing is changed; with --3way there are conflicts
  2  an unknown run, one that has not ended or had no workspace of its own, or no folder to apply to
  5  no daemon answers";

/// Flags of `herder apply`.
#[derive(Clone, Debug, Args)]
pub struct ApplyArgs {
    /// The runs, in the order in which their patches are applied
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<String>,
    /// Say whether they fit, and change nothing
    #[arg(long)]
    pub check: bool,
    /// Apply them to this tree [default: the folder that the tasks name]
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Merge where a patch does not fit, by way of the index
    #[arg(long = "3way", conflicts_with = "check")]
    pub three_way: bool,
}

/// Runs the command.
pub(crate) async fn main(args: ApplyArgs, context: Context) -> anyhow::Result<Exit> {
    let patches = patches(&args.runs, &context).await?;
    let how = match (args.check, args.three_way) {
        (true, _) => How::Check,
        (false, true) => How::ThreeWay,
        (false, false) => How::Plainly,
    };
    let (to, relative) = target(&patches, args.to.as_deref())?;
    let named = args.runs.iter().zip(patches).filter(|(_, patch)| !patch.bytes.is_empty());
    let (mut all, mut count) = (Vec::new(), 0);
    for (name, RunPatch { detail, bytes }) in named {
        count += detail.run.files_changed.unwrap_or_default();
        let short =
            if *name == detail.run.id { name.clone() } else { format!("{name} (run {})", detail.run.id) };
        all.push(Patch { name: short, bytes });
    }
    if all.is_empty() {
        say("nothing was changed, so there is nothing to apply");
        return Ok(Exit::Done);
    }
    if let Err(error) = apply::apply(ProcessRunner::default(), &to, relative, &all, how).await {
        return Err(anyhow::Error::new(error));
    }
    let (patches, files) = (plural(all.len() as u64, "patch", "patches"), plural(count, "file", "files"));
    say(&match how {
        How::Check => format!("{patches} of {files} would fit {}", to.display()),
        How::Plainly | How::ThreeWay => format!("applied {patches} of {files} to {}", to.display()),
    });
    Ok(Exit::Done)
}

/// The tree, and what paths in the patches are relative to. Runs of several trees are applied one tree at a time.
fn target(patches: &[RunPatch], named: Option<&Path>) -> Result<(PathBuf, Relative), UsageError> {
    let place = |patch: &RunPatch| {
        let relative = match patch.detail.isolate.as_deref() {
            Some("worktree") => Relative::Repository,
            Some(_) | None => Relative::Folder,
        };
        (named.map_or_else(|| PathBuf::from(&patch.detail.workspace), Path::to_owned), relative)
    };
    let mut places = patches.iter().map(place);
    let first = places.next().unwrap_or_else(|| (PathBuf::from("."), Relative::Folder));
    if let Some((other, _)) = places.find(|place| *place != first) {
        let what = format!(
            "the runs are of different folders, {} and {}; apply those of each by themselves",
            first.0.display(),
            other.display()
        );
        return Err(UsageError(what));
    }
    Ok(first)
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
