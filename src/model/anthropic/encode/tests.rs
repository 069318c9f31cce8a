//! Requests, byte for byte.
