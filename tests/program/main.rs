//! The program as an operator meets it: the command line, the configuration, and the commands on a
//! store.

mod cli;
mod config;
mod copy;
mod ctl;
mod doctor;
mod guide;
mod import;
mod passwd;
mod store;
