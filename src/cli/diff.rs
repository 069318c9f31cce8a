//! `herder diff`: what a run changed in a workspace of its own.

use std::io;

use clap::Args;

use super::{
    Context, Exit, colored,
    patches::{RunPatch, patches},
    render::harmless,
    start::say,
    stdout::Output,
};
use crate::tool::{isolate::apply, process::ProcessRunner};

pub(super) const ABOUT: &str = "Show what a run changed

The run had a workspace of its own (--isolate worktree or copy), and has ended. RUN is a run's id, the beginning of one, or a \
task's id (its latest attempt), of the daemon or with --state of a folder. What is printed is a patch that `git apply` \
takes, new files included; what git ignores is not in it, nor \
what is in repositories within the workspace.";

pub(super) const AFTER: &str = "EXAMPLES
  herder diff task-17 --state out.jsonl.state
  herder diff task-17 --stat
  herder diff task-17 > task-17.patch

EXIT CODES
  0  it is printed; nothing is, if nothing was changed
  2  an unknown run, or one that has not ended or had no workspace of its own
  5  no daemon answers";

/// Flags of `herder diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Only say how much is changed in which files
    #[arg(long)]
    pub stat: bool,
}

/// Runs the command.
pub(crate) async fn main(args: DiffArgs, context: Context) -> anyhow::Result<Exit> {
    let mut out = Output::stdout();
    for RunPatch { detail, bytes } in patches(std::slice::from_ref(&args.run), &context).await? {
        if bytes.is_empty() {
            say(&format!("run {} changed nothing", detail.run.id));
        } else if args.stat {
            let stat = apply::stat(ProcessRunner::default(), bytes).await?;
            let _open = out.text(&harmless(&stat))?;
        } else if colored(&io::stdout()) {
            let _open = out.text(&painted(&harmless(&String::from_utf8_lossy(&bytes))))?;
        } else {
            let _open = out.bytes(&bytes)?;
        }
    }
    let _open = out.flush()?;
    Ok(Exit::Done)
}

/// A patch with its lines in the colours that git gives them.
fn painted(patch: &str) -> String {
    const RESET: &str = "\x1b[m";
    let color = |line: &str| match line.as_bytes() {
        [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => Some("\x1b[1m"),
        [b'+', ..] => Some("\x1b[32m"),
        [b'-', ..] => Some("\x1b[31m"),
        [b'@', b'@', ..] => Some("\x1b[36m"),
        [b' ' | b'\\', ..] | [] => None,
        _ => Some("\x1b[1m"),
    };
    let paint = |line: &str| match color(line) {
        Some(color) => format!("{color}{line}{RESET}\n"),
        None => format!("{line}\n"),
    };
    patch.lines().map(paint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_and_removed_lines_have_their_colours() {
        let patch = "diff --git a/a b/a\n@@ -1 +1 @@\n-old\n+new\n same\n";
        assert_eq!(
            painted(patch),
            "\x1b[1mdiff --git a/a b/a\x1b[m\n\x1b[36m@@ -1 +1 @@\x1b[m\n\x1b[31m-old\x1b[m\n\x1b[32m+new\x1b[m\n same\n"
        );
    }
}
