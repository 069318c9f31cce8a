//! Who is calling, and what they may do.
//!
//! Over the Unix socket the system says who it is; over TCP the token does. Knows nothing of what is asked for: a route says
//! which role it wants.

use std::collections::BTreeMap;

use tokio::net::UnixStream;

use crate::tool::process::is_of_a_command;

/// Who sent a request: an extension of every request that reaches a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub via: Via,
    pub role: Role,
}

/// The way a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    Unix {
        uid: u32,
        gid: u32,
        /// The process that connected; it may have ended since.
        pid: Option<i32>,
    },
    Tcp,
}

/// What a caller may do. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Submits, steers, cancels, pauses, retunes.
    Operator,
    /// Answers what a run asks leave for.
    Approver,
}

/// Who is let in, and as what.
#[derive(Clone, Debug)]
pub struct Access {
    /// The user whose daemon it is.
    pub owner: u32,
    pub roles: BTreeMap<u32, Role>,
    /// For a user who has no role of their own. The socket's mode lets in the members of a group only, so this is theirs.
    pub group_default: Option<Role>,
    /// For whoever has the token. Commands can read files of the owner's: what a model has run may well have it.
    pub tcp: Role,
}

impl Access {
    /// Lets in the user that this process runs as, and root; over TCP nobody changes anything.
    pub fn own() -> Self {
        Self {
            owner: rustix::process::geteuid().as_raw(),
            roles: BTreeMap::new(),
            group_default: None,
            tcp: Role::Viewer,
        }
    }

    /// What a user may do. The owner and root, who could do so by other means, may do everything.
    pub fn role_of(&self, uid: u32) -> Option<Role> {
        if uid == self.owner || uid == 0 {
            return Some(Role::Approver);
        }
        self.roles.get(&uid).copied().or(self.group_default)
    }

    /// Who it is that connected, if they are let in. One of whom the system does not tell is not.
    pub(super) fn caller(&self, stream: &UnixStream) -> Option<Caller> {
        let peer = stream.peer_cred().ok()?;
        let (uid, gid, pid) = (peer.uid(), peer.gid(), peer.pid());
        let role = self.role_of(uid)?;
        // Commands run as the owner. What a model has run is not to answer for the person whose name it runs under.
        let may_be_a_model_s = uid == self.owner || uid == 0;
        let role = if may_be_a_model_s && pid.is_some_and(comes_of_a_command) { Role::Viewer } else { role };
        Some(Caller { via: Via::Unix { uid, gid, pid }, role })
    }
}

/// Whether the process came of a command that herder runs, or is gone before that could be found out.
fn comes_of_a_command(pid: i32) -> bool {
    // 0 is a process of another namespace, which no command gets into.
    pid > 0 && is_of_a_command(pid).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Access {
        Access { owner: 7, roles: BTreeMap::from([(8, Role::Viewer)]), ..Access::own() }
    }

    #[test]
    fn the_owner_and_root_may_do_everything_whatever_the_table_says() {
        let access = Access { roles: BTreeMap::from([(7, Role::Viewer), (0, Role::Viewer)]), ..shared() };
        assert_eq!([7, 0].map(|uid| access.role_of(uid)), [Some(Role::Approver); 2]);
    }

    #[test]
    fn another_user_has_the_role_of_the_table_or_that_of_the_group_or_none() {
        assert_eq!(shared().role_of(8), Some(Role::Viewer));
        assert_eq!(shared().role_of(9), None);
        let group = Access { group_default: Some(Role::Operator), ..shared() };
        assert_eq!([8, 9].map(|uid| group.role_of(uid)), [Some(Role::Viewer), Some(Role::Operator)]);
    }

    #[test]
    fn a_role_may_do_what_those_below_it_may() {
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Approver);
    }
}
