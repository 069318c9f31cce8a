//! What a job claims at one path, and which claims at that path bar each other.
//!
//! An access claims its own path by its scope and mode, and each folder above it by the mode alone. Two accesses
//! then conflict if and only if there is a path at which their claims bar each other, so nothing below or above
//! that path has to be looked at.

use crate::domain::call::{Access, Mode, Scope};

/// One job's claim at one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    FileShared,
    FileExclusive,
    TreeShared,
    TreeExclusive,
    /// Shares something further down.
    BelowShared,
    /// Has something further down for itself.
    BelowExclusive,
}

impl Claim {
    /// How many there are; each is a place in an array of that length.
    pub(super) const COUNT: usize = 6;

    /// The claim at the access's own path.
    pub(super) fn at(access: &Access) -> Self {
        match (access.scope, access.mode) {
            (Scope::File, Mode::Shared) => Self::FileShared,
            (Scope::File, Mode::Exclusive) => Self::FileExclusive,
            (Scope::Tree, Mode::Shared) => Self::TreeShared,
            (Scope::Tree, Mode::Exclusive) => Self::TreeExclusive,
        }
    }

    /// The claim at every folder above.
    pub(super) fn above(self) -> Self {
        match self {
            Self::FileShared | Self::TreeShared | Self::BelowShared => Self::BelowShared,
            Self::FileExclusive | Self::TreeExclusive | Self::BelowExclusive => Self::BelowExclusive,
        }
    }

    /// The claims of other jobs at the same path that this one cannot stand beside; barring is mutual.
    pub(super) fn bars(self) -> &'static [Self] {
        match self {
            Self::FileShared => &[Self::FileExclusive, Self::TreeExclusive],
            Self::FileExclusive => {
                &[Self::FileShared, Self::FileExclusive, Self::TreeShared, Self::TreeExclusive]
            }
            Self::TreeShared => &[Self::FileExclusive, Self::TreeExclusive, Self::BelowExclusive],
            Self::TreeExclusive => &[
                Self::FileShared,
                Self::FileExclusive,
                Self::TreeShared,
                Self::TreeExclusive,
                Self::BelowShared,
                Self::BelowExclusive,
            ],
            Self::BelowShared => &[Self::TreeExclusive],
            Self::BelowExclusive => &[Self::TreeShared, Self::TreeExclusive],
        }
    }
}
