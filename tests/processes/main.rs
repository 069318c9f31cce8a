//! Commands run under the real binary as guard: whatever they do, nothing of them survives.

mod endings;
mod harness;
mod leftovers;
mod output;
