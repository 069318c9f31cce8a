//! Confined paths, replacement and the reading tools, on a real file system.
