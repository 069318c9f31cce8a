//! What the process ends with, and which failure ends it how.

use std::process::ExitCode;

use crate::{
    app::{
        batch::BatchError,
        doctor::RepairError,
        herder::StartError,
        input::{InputError, SingleError},
        models::ModelsError,
        state::{FindError, StateError},
        tools::ToolsError,
    },
    config::{ConfigError, policies::PolicyError},
    daemon::{
        client::ClientError,
        lifetime::ServeError,
        server::{socket::SocketError, systemd::OddSocket},
        wire::Code,
    },
    store::folder::FolderError,
    telemetry::{log::LogError, prometheus::MetricsError},
};

/// How a command ended. The numbers are public: scripts branch on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything asked for is done.
    Done,
    /// Something is not done, or could not be.
    NotDone,
    /// The command line, the configuration or the input is not right; nothing ran.
    Usage,
    /// A batch was halted by its own rule.
    Halted,
    /// The journal does not fit the input.
    Misfit,
    /// There is no daemon to ask.
    NoDaemon,
    /// Another version wrote what is to be read.
    Version,
    /// SIGINT ended it.
    Interrupted,
    /// SIGTERM ended it.
    Terminated,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::NotDone => 1,
            Self::Usage => 2,
            Self::Halted => 3,
            Self::Misfit => 4,
            Self::NoDaemon => 5,
            Self::Version => 6,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// How a command ends that met this error.
    pub fn of(error: &anyhow::Error) -> Self {
        if let Some(batch) = error.downcast_ref::<BatchError>() {
            return match batch {
                BatchError::Misfit { .. }
                | BatchError::OtherBatch { .. }
                | BatchError::OutWithoutJournal { .. }
                | BatchError::Lost { .. }
                | BatchError::OutLeadsElsewhere { .. } => Self::Misfit,
                BatchError::State(state) => Self::of_state(state),
                BatchError::Start(_) | BatchError::OutPlace { .. } => Self::Usage,
                BatchError::Store(_) | BatchError::OutUnread { .. } | BatchError::Out { .. } => Self::NotDone,
            };
        }
        if let Some(client) = error.downcast_ref::<ClientError>() {
            return match client {
                ClientError::NoDaemon { .. } | ClientError::NotHerder { .. } => Self::NoDaemon,
                ClientError::Version { .. } => Self::Version,
                ClientError::Refused(refusal) => Self::of_code(refusal.code),
                ClientError::Lost { .. } | ClientError::Setup(_) => Self::NotDone,
            };
        }
        if let Some(serve) = error.downcast_ref::<ServeError>() {
            return match serve {
                ServeError::State(state) => Self::of_state(state),
                ServeError::Start(_)
                | ServeError::Socket(_)
                | ServeError::Listen(_)
                | ServeError::Token(_)
                | ServeError::Config(_)
                | ServeError::NoUser(_) => Self::Usage,
                ServeError::Inputs(_)
                | ServeError::Store(_)
                | ServeError::Metrics(_)
                | ServeError::System(_) => Self::NotDone,
            };
        }
        if error.is::<MisfitError>() {
            return Self::Misfit;
        }
        if let Some(state) = error.downcast_ref::<StateError>() {
            return Self::of_state(state);
        }
        if let Some(folder) = error.downcast_ref::<FolderError>() {
            return Self::of_folder(folder);
        }
        if let Some(repair) = error.downcast_ref::<RepairError>() {
            return match repair {
                RepairError::Folder(folder) => Self::of_folder(folder),
                RepairError::Log(_) | RepairError::File { .. } => Self::NotDone,
            };
        }
        // What a person can put right before anything runs.
        let usage = error.is::<ConfigError>()
            || error.is::<ModelsError>()
            || error.is::<InputError>()
            || error.is::<SingleError>()
            || error.is::<LogError>()
            || error.is::<MetricsError>()
            || error.is::<UsageError>()
            || error.is::<SocketError>()
            || error.is::<OddSocket>()
            || error.is::<StartError>()
            || error.is::<PolicyError>()
            || error.is::<ToolsError>()
            || error.is::<FindError>();
        if usage { Self::Usage } else { Self::NotDone }
    }

    /// How a command ends that the daemon refused.
    const fn of_code(code: Code) -> Self {
        match code {
            Code::BadRequest
            | Code::UnknownRun
            | Code::NoPatch
            | Code::UnknownCall
            | Code::UnknownApproval
            | Code::UnknownBatch
            | Code::UnknownModel
            | Code::Ambiguous
            | Code::KeyReused
            | Code::Ahead
            | Code::TooLarge
            | Code::InvalidInput => Self::Usage,
            Code::Misfit => Self::Misfit,
            // The daemon's routes are those of its version.
            Code::ApiVersion | Code::UnknownRoute | Code::MethodNotAllowed => Self::Version,
            Code::Unauthorized
            | Code::Forbidden
            | Code::Timeout
            | Code::Busy
            | Code::Resolved
            | Code::Ended
            | Code::NotEnded
            | Code::Ending
            | Code::OtherTurn
            | Code::Internal
            | Code::Unavailable
            | Code::StoreUnavailable
            | Code::TooManyConnections => Self::NotDone,
        }
    }

    const fn of_state(error: &StateError) -> Self {
        if error.is_newer() { Self::Version } else { Self::Usage }
    }
}

impl Exit {
    const fn of_folder(error: &FolderError) -> Self {
        if matches!(error, FolderError::Newer { .. }) { Self::Version } else { Self::Usage }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// What is asked for does not fit what is of record.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MisfitError(pub String);

/// A mistake of the command line that only the command itself can see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;
    use crate::daemon::wire::ApiError;

    #[test]
    fn an_error_ends_the_command_by_its_kind_even_with_context() {
        let usage: anyhow::Error = UsageError("no".to_owned()).into();
        assert_eq!(Exit::of(&usage), Exit::Usage);
        let misfit = BatchError::OtherBatch { journal: "j".to_owned(), what: "w".to_owned() };
        let misfit = Err::<(), _>(misfit).context("batch").expect_err("an error");
        assert_eq!(Exit::of(&misfit), Exit::Misfit);
        assert_eq!(Exit::of(&anyhow::anyhow!("store")), Exit::NotDone);
    }

    #[test]
    fn what_the_daemon_refuses_ends_the_command_by_its_code() {
        let exit = |code| Exit::of(&ClientError::Refused(ApiError::new(code, "no")).into());
        assert_eq!(exit(Code::UnknownRun), Exit::Usage);
        assert_eq!(exit(Code::InvalidInput), Exit::Usage);
        assert_eq!(exit(Code::Ended), Exit::NotDone);
        assert_eq!(exit(Code::Misfit), Exit::Misfit);
        assert_eq!(exit(Code::ApiVersion), Exit::Version);
    }
}
