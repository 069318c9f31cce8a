//! What a person sets: read, checked, and refused with the place and what would be right.

pub mod policies;
