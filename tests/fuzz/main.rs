//! Answers as no server should send them: a corpus of streams, changed at random from a fixed seed, read in every way.
//!
//! A protocol joins by a row in [`codec::CODECS`] and a folder of its name in `corpus`.

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod codec;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod cuts;
#[cfg(test)]
mod mutants;
#[cfg(test)]
mod mutate;
#[cfg(test)]
mod pings;

/// Counts what the tests of [`bounds`] allocate.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: alloc_tracker::Allocator<std::alloc::System> = alloc_tracker::Allocator::system();
