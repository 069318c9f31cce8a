//! Tools that the configuration defines: a program that gets a call's arguments as JSON and prints the result.
//!
//! The program finds the arguments on its stdin, the call's id and idempotency key in its environment, and runs in
//! the workspace. What it prints is the result; an exit code other than 0 says that it failed.

use std::{ffi::OsString, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use serde_json::Value;

pub use super::launcher::Reach;
use super::{
    CallContext, Output, Started, Tool,
    digest::digest,
    launcher::{Launcher, Program},
    process::confine::Network,
    workspace::Workspace,
};
use crate::domain::{
    batch::canonical,
    call::{Access, EffectClass, Mode, Scope, ToolSpec},
    id::RunId,
};

/// A tool as the configuration defines it.
#[derive(Clone, Debug)]
pub struct CommandOptions {
    pub name: Arc<str>,
    /// For the model.
    pub description: Arc<str>,
    /// The JSON Schema of the arguments: an object's.
    pub schema: Arc<Value>,
    /// The program, looked up in `PATH` unless it has a slash, and its arguments. A relative path starts at the
    /// workspace.
    pub argv: Vec<OsString>,
    pub reach: Reach,
    /// Whether it may use the network; as the launcher says if left out.
    pub network: Option<Network>,
    /// How long a call may take; as long as the run allows if left out.
    pub timeout: Option<Duration>,
}

/// Why there is no such tool.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("tool {0:?} names no program")]
    NoProgram(Arc<str>),
}

/// A program as a tool.
#[derive(Debug)]
pub struct CommandTool {
    spec: ToolSpec,
    program: OsString,
    args: Vec<OsString>,
    reach: Reach,
    network: Option<Network>,
    timeout: Option<Duration>,
    launcher: Arc<Launcher>,
}

impl CommandTool {
    /// Makes the tool; whether the program is there shows when it is called.
    ///
    /// # Errors
    /// No program is named.
    pub fn new(options: CommandOptions, launcher: Arc<Launcher>) -> Result<Self, CommandError> {
        let CommandOptions { name, description, schema, argv, reach, network, timeout } = options;
        let mut argv = argv.into_iter();
        let Some(program) = argv.next().filter(|program| !program.is_empty()) else {
            return Err(CommandError::NoProgram(name));
        };
        let spec = ToolSpec { name, description, schema };
        Ok(Self { spec, program, args: argv.collect(), reach, network, timeout, launcher })
    }

    async fn run(&self, context: &CallContext, arguments: &Value) -> Output {
        let arguments = canonical(arguments);
        let key = digest(&[&context.run.to_string(), context.call.as_str(), &self.spec.name, &arguments]);
        let program = Program {
            program: self.program.clone(),
            args: self.args.clone(),
            env: vec![
                ("HERDER_CALL_ID".into(), context.call.as_str().into()),
                ("HERDER_IDEMPOTENCY_KEY".into(), key.into()),
            ],
            stdin: Some(arguments.into_bytes()),
            reach: self.reach,
            network: self.network,
            timeout: self.timeout.unwrap_or(context.timeout),
        };
        self.launcher.run(context, program).await.unwrap_or_else(Output::from)
    }
}

impl Tool for CommandTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        match self.reach {
            Reach::ReadOnly => EffectClass::Read,
            Reach::Anything => EffectClass::Outside,
        }
    }

    fn access(&self, workspace: &Workspace, _: &Value) -> Result<Vec<Access>, String> {
        let mode = match self.reach {
            Reach::ReadOnly => Mode::Shared,
            Reach::Anything => Mode::Exclusive,
        };
        Ok(vec![Access { scope: Scope::Tree, path: Arc::clone(workspace.key()), mode }])
    }

    fn start(self: Arc<Self>, context: CallContext, arguments: Value) -> BoxFuture<'static, Started> {
        let work = Box::pin(async move { self.run(&context, &arguments).await });
        Box::pin(std::future::ready(Started::Ready { change: None, work }))
    }

    fn forget(&self, run: RunId) {
        self.launcher.forget(run);
    }
}
