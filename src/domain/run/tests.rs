//! What a run promises, one sentence a test.
