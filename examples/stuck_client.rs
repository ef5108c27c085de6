//! A client that is stuck: it receives QoS 1 messages and never acknowledges one.
//!
//! The packets are written by hand, because a client library would acknowledge. The session is
//! kept, so that the broker disconnects the client in the end. Every received packet is printed
//! with the time.
//!
//! ```sh
//! cargo run --release -- --set redelivery.interval=1s --set redelivery.attempts=2
//! cargo run --example stuck_client               # or with a port: --example stuck_client 1884
//! mosquitto_pub -q 1 -t pumps/7/set -m open
//! mosquitto_sub -t '$homing/clients/pump-7/last-disconnect'
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// CONNECT: MQTT 3.1.1, no Clean Session, no keep alive, client id `pump-7`.
const CONNECT: &[u8] = b"\x10\x12\x00\x04MQTT\x04\x00\x00\x00\x00\x06pump-7";

/// SUBSCRIBE: packet 1, topic filter `pumps/7/set`, QoS 1.
const SUBSCRIBE: &[u8] = b"\x82\x10\x00\x01\x00\x0bpumps/7/set\x01";

#[expect(clippy::disallowed_methods, reason = "a client has a clock of its own")]
fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).map_or(Ok(1883), |text| text.parse())?;
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(CONNECT)?;
    stream.write_all(SUBSCRIBE)?;

    let start = Instant::now();
    let mut buffer = [0; 4096];
    loop {
        // The broker sends these packets one by one. A real client would look for packet
        // boundaries.
        let length = stream.read(&mut buffer)?;
        let seconds = start.elapsed().as_secs_f64();
        let packet = &buffer[..length];
        let Some(first) = packet.first() else {
            println!("{seconds:7.2} s  closed by the broker");
            return Ok(());
        };
        let name = match first >> 4 {
            2 => "CONNACK",
            3 if first & 8 != 0 => "PUBLISH, DUP=1",
            3 => "PUBLISH, DUP=0",
            9 => "SUBACK",
            _ => "another packet",
        };
        println!("{seconds:7.2} s  {name:<15} {}", packet.escape_ascii());
    }
}
