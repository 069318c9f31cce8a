//! Decides which tool calls may start now: the mutation queue as a pure structure.
