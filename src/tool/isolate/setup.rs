//! The command that makes a new workspace ready to be worked in.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::{IsolateError, Isolation};
use crate::{
    domain::id::RunId,
    tool::{
        process::{CaptureLimits, CommandSpec, End, environment},
        workspace::Told,
    },
};

impl Isolation {
    /// Runs the setup command, if there is one.
    pub(super) async fn set_up(
        &self,
        run: RunId,
        task_id: Option<&str>,
        folder: &Path,
        ended: &CancellationToken,
    ) -> Result<(), IsolateError> {
        let Some(setup) = &self.options.setup else { return Ok(()) };
        let own = [("HERDER_RUN_ID".into(), run.to_string().into())]
            .into_iter()
            .chain(task_id.map(|id| ("HERDER_TASK_ID".into(), id.into())));
        let spec = CommandSpec {
            args: vec!["-c".into(), setup.into()],
            env: environment(std::env::vars_os(), &self.options.env_pass, own),
            limits: self.options.limits.clone(),
            timeout: Some(self.options.setup_timeout),
            grace: self.options.grace,
            output: CaptureLimits::default(),
            ..CommandSpec::new("sh", folder)
        };
        let cannot = |how: String, tail: String| Err(IsolateError::Setup { how, tail });
        match self.git.runner().run(spec, ended).await {
            Err(error) => cannot(format!("did not start: {}", Told(&error)), String::new()),
            Ok(finished) => {
                let how = match finished.end {
                    End::Exited(0) => return Ok(()),
                    End::Exited(code) => format!("exited with {code}"),
                    End::Signalled(signal) => format!("was ended by signal {signal}"),
                    End::OutOfMemory => "ran out of memory".to_owned(),
                    End::TimedOut => {
                        format!("took longer than {} s", self.options.setup_timeout.as_secs())
                    }
                    End::Cancelled | End::GuardLost => "was killed".to_owned(),
                };
                cannot(how, tail(&finished.output.text))
            }
        }
    }
}

/// The end of what a command put out.
fn tail(text: &str) -> String {
    const LINES: usize = 20;
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
