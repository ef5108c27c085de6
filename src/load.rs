//! `homing load`: the load tester in `crates/load`, with the TLS and the threads of this package.

use crate::net::tls::client::client_config;
use crate::net::tls::settings::CertificateFiles;
use crate::scheduling;
use homing_load::{ClientCertificate, HostProgram};
use std::process::ExitCode;

pub use homing_load::{LoadArguments, one_line};

/// Runs a scenario or adds reports, and returns the exit code of [`homing_load::run`].
pub fn run(arguments: &LoadArguments) -> ExitCode {
    let program = HostProgram {
        client_tls: |ca, certificate| {
            client_config(ca, certificate.map(files).as_ref()).map_err(|error| error.to_string())
        },
        wake_soon: scheduling::wake_soon,
    };
    homing_load::run(arguments, program)
}

fn files(ClientCertificate { certificate, key }: ClientCertificate<'_>) -> CertificateFiles {
    CertificateFiles { certificate: certificate.to_owned(), chain: None, key: key.to_owned() }
}
