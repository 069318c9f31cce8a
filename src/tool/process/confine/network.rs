//! Takes the network away, with a seccomp filter.
//!
//! No socket can be made but a Unix socket, and no ring through which the kernel would make one unasked. Programs of
//! another architecture, whose system calls have other numbers, are killed.

use std::{collections::BTreeMap, env::consts::ARCH, io, path::Path};

use rustix::io::Errno;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::system_error;

/// Marks a call of the x32 kind, which goes by the same architecture as the usual ones.
const X32: i64 = 0x4000_0000;

pub(super) fn is_supported() -> bool {
    TargetArch::try_from(ARCH).is_ok() && Path::new("/proc/sys/kernel/seccomp/actions_avail").exists()
}

pub(super) fn deny() -> io::Result<()> {
    let filter = filter().map_err(|error| system_error(&error))?;
    apply_filter(&filter).map_err(|error| system_error(&error))
}

fn filter() -> Result<BpfProgram, BackendError> {
    let other_than_unix = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Ne,
        u64::from(libc::AF_UNIX.cast_unsigned()),
    )?;
    let other_than_unix = SeccompRule::new(vec![other_than_unix])?;
    let refused = [
        (libc::SYS_socket, vec![other_than_unix.clone()]),
        (libc::SYS_socketpair, vec![other_than_unix]),
        (libc::SYS_io_uring_setup, Vec::new()),
    ];
    let x32 = refused.clone().map(|(call, rules)| (call | X32, rules));
    let x32 = x32.into_iter().filter(|_| cfg!(target_arch = "x86_64"));
    let rules: BTreeMap<_, _> = refused.into_iter().chain(x32).collect();
    let refusal = SeccompAction::Errno(Errno::ACCESS.raw_os_error().cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, refusal, TargetArch::try_from(ARCH)?)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_one_that_the_kernel_takes() {
        let filter = filter().unwrap();
        let taken = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            apply_filter(&filter).unwrap();
            let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            std::os::unix::net::UnixStream::pair().unwrap();
        });
        taken.join().unwrap();
    }
}
