//! The session state machine, split by concern of the standard.
