//! The actors.

use crate::config::Config;
use std::net::SocketAddr;
use std::process::ExitCode;

/// A running broker.
pub struct Broker {
    addresses: Vec<SocketAddr>,
}

/// Why a broker does not start, in one line that names the address or key.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}: {cause}")]
    Bind { address: SocketAddr, cause: std::io::Error },
}

impl Broker {
    pub fn start(config: Config) -> Result<Broker, StartError> {
        Ok(Broker { addresses: config.listeners.addresses })
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn run(self) -> ExitCode {
        ExitCode::SUCCESS
    }
}
