//! The committing thread.
