//! The tool `bash`: a command line in the workspace.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{parse, spec};
use crate::{
    domain::{
        call::{Access, EffectClass, Failure, Mode, Scope, ToolSpec},
        id::RunId,
        policy::command::is_plain,
    },
    tool::{
        CallContext, Output, Preview, Started, Tool,
        launcher::{LaunchError, Launcher, Program, Reach},
        process::{SpawnError, confine::Network},
        workspace::Workspace,
    },
};

/// The shells to try, in this order.
const SHELL: &str = "bash";
const FALLBACK: &str = "sh";

const DESCRIPTION: &str = "Runs a command with bash in the workspace folder, without terminal and input, and gives what it prints (stdout \
     and stderr in one) and its exit code if that is not 0. Long output loses its middle. Each call is a new shell: \
     the current folder and variables do not carry over, files in $TMPDIR do. When the command has ended, so is every \
     process that it leaves in the background.";

/// What a model has to know so as not to take a refusal for a fault.
fn bounds(launcher: &Launcher) -> String {
    let mut text = String::new();
    if launcher.bounds.confine_files() {
        text.push_str(" Files can be changed only in the workspace and in $TMPDIR (not in /tmp itself)");
        for root in &launcher.bounds.write_roots {
            text.push_str(&format!(", {}", root.display()));
        }
        text.push_str("; elsewhere permission is denied, so git cannot commit in a worktree.");
    }
    match launcher.bounds.network {
        Network::Allow => {}
        Network::Deny => text.push_str(" There is no network."),
    }
    text
}

pub(super) struct Bash {
    launcher: Arc<Launcher>,
    timeout: Duration,
    spec: ToolSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    timeout_s: Option<u64>,
}

impl Bash {
    pub(super) fn new(launcher: Arc<Launcher>, timeout: Duration) -> Self {
        let spec = spec(
            "bash",
            &format!("{DESCRIPTION}{}", bounds(&launcher)),
            json!({
                "type": "object",
                "properties": {
                    "command": { "type": "string", "minLength": 1, "description": "The command line, or a script of many lines." },
                    "timeout_s": {
                        "type": "integer",
                        "minimum": 1,
                        "description": format!(
                            "Seconds after which the command is ended. Default {}; the run may allow less.",
                            timeout.as_secs_f64()
                        ),
                    },
                },
                "required": ["command"],
                "additionalProperties": false,
            }),
        );
        Self { launcher, timeout, spec }
    }

    fn arguments(&self, arguments: &Value) -> Result<Arguments, String> {
        let arguments: Arguments = parse(&self.spec, arguments)?;
        if arguments.command.contains('\0') {
            return Err("the command contains a NUL character".to_owned());
        }
        Ok(arguments)
    }

    async fn run(&self, context: &CallContext, Arguments { command, timeout_s }: Arguments) -> Output {
        let with = |shell: &str| Program {
            program: shell.into(),
            args: vec!["-c".into(), command.clone().into()],
            env: Vec::new(),
            stdin: None,
            reach: Reach::Anything,
            network: None,
            timeout: timeout_s.map_or(self.timeout, Duration::from_secs),
        };
        let ran = match self.launcher.run(context, with(SHELL)).await {
            // It was judged as what bash makes of it.
            Err(LaunchError::Spawn(SpawnError::Missing { .. })) if !is_plain(&command) => {
                let why = "bash is not there, and sh might read this line in another way; write it in plain POSIX sh";
                return Output::failed(Failure::Failed, why.to_owned());
            }
            Err(LaunchError::Spawn(SpawnError::Missing { .. })) => {
                self.launcher.run(context, with(FALLBACK)).await
            }
            ran => ran,
        };
        ran.unwrap_or_else(Output::from)
    }
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        EffectClass::Outside
    }

    fn access(&self, workspace: &Workspace, arguments: &Value) -> Result<Vec<Access>, String> {
        self.arguments(arguments)?;
        Ok(vec![Access { scope: Scope::Tree, path: Arc::clone(workspace.key()), mode: Mode::Exclusive }])
    }

    fn command<'a>(&self, arguments: &'a Value) -> Option<&'a str> {
        arguments.get("command").and_then(Value::as_str)
    }

    fn preview(&self, _: &Workspace, arguments: &Value) -> Result<Preview, String> {
        Ok(Preview { change: None, text: Some(self.arguments(arguments)?.command.into()) })
    }

    fn start(self: Arc<Self>, context: CallContext, arguments: Value) -> BoxFuture<'static, Started> {
        Box::pin(async move {
            match self.arguments(&arguments) {
                Ok(arguments) => Started::Ready {
                    change: None,
                    work: Box::pin(async move { self.run(&context, arguments).await }),
                },
                Err(why) => Started::Ended(Output::failed(Failure::Failed, why)),
            }
        })
    }

    fn forget(&self, run: RunId) {
        self.launcher.forget(run);
    }
}
