//! Configuration: built-in defaults, file, environment, flags.
