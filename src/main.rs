//! The `homing` command.

fn main() {}
