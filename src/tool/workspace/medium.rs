//! Whether a file system answers at once, or may keep whoever asks it waiting for ever.
//!
//! A look at the folders of a path costs microseconds on a disk of this machine, much less than to have another thread
//! do it. On a network file system, or one in user space, it takes as long as somebody else pleases.

use std::os::fd::AsFd;

/// What a folder lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// Memory or a disk of this machine.
    Local,
    /// Anything else.
    Other,
}

/// Kinds of local file systems, by the numbers of Linux's `magic.h`: ext, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, ramfs,
/// bcachefs.
const LOCAL: [u64; 9] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0x794C_7630,
    0x2FC1_2FC1,
    0xF2F5_2010,
    0x8584_58F6,
    0xCA45_1A4E,
];

impl Medium {
    /// What an open folder lies on; if that cannot be told, anything.
    pub(super) fn of(folder: impl AsFd) -> Self {
        let kind = rustix::fs::fstatfs(folder).ok().and_then(|facts| u64::try_from(facts.f_type).ok());
        if kind.is_some_and(|kind| LOCAL.contains(&kind)) { Self::Local } else { Self::Other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_local_and_what_the_kernel_makes_up_is_not_said_to_be() {
        let of = |path: &str| Medium::of(std::fs::File::open(path).unwrap());
        assert_eq!(of("/dev/shm"), Medium::Local);
        assert_eq!(of("/proc"), Medium::Other);
    }
}
