//! Takes away the rights of root that lead past what is kept.
//!
//! Root could drive devices, load code into the kernel, or read another process's memory and environment, herder's and its
//! keys included. What is given up does not come back with the next program, because no rights can be gained by then.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

const GIVEN_UP: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::SYS_MODULE)
    .union(CapabilitySet::SYS_RAWIO)
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE);

pub(super) fn give_up() -> io::Result<()> {
    let held = capabilities(None)?;
    let kept = CapabilitySets {
        effective: held.effective.difference(GIVEN_UP),
        permitted: held.permitted.difference(GIVEN_UP),
        inheritable: held.inheritable.difference(GIVEN_UP),
    };
    if kept == held { Ok(()) } else { Ok(set_capabilities(None, kept)?) }
}
