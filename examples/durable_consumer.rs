//! A consumer that loses nothing: it acknowledges a message after its work is done.
//!
//! Three choices make it durable. The client id is fixed, and Clean Session is off: the broker
//! keeps the session while the consumer is away. Acknowledgements are sent by hand, after the work:
//! if the consumer dies before, the message comes again. The work can bear a repetition, because
//! QoS 1 delivers at least once.
//!
//! ```sh
//! cargo run --example durable_consumer           # or with a port: --example durable_consumer 1884
//! ```
//!
//! Stop it with Ctrl-C, run the example `publisher`, and start it again: the messages come then.

use rumqttc::{Client, ConnectReturnCode, Event, MqttOptions, Packet, Publish, QoS};
use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).map_or(Ok(1883), |text| text.parse())?;
    let mut options = MqttOptions::new("example-consumer", "127.0.0.1", port);
    options.set_clean_session(false).set_manual_acks(true);
    // There is room for more requests than the broker has messages in flight (limits.in_flight,
    // 100).
    let (client, mut connection) = Client::new(options, 1_000);

    for event in connection.iter() {
        match event {
            Ok(Event::Incoming(Packet::ConnAck(connack))) if connack.code == ConnectReturnCode::Success => {
                println!("connected, session present: {}", connack.session_present);
                // A session that is present has its subscriptions. A second SUBSCRIBE is harmless.
                client.subscribe("orders/#", QoS::AtLeastOnce)?;
            }
            Ok(Event::Incoming(Packet::Publish(publish))) => {
                work(&publish);
                client.ack(&publish)?;
            }
            Ok(_) => {}
            Err(error) => {
                println!("not connected: {error}; trying again in a second");
                sleep(Duration::from_secs(1));
            }
        }
    }
    Ok(())
}

/// Does what a message asks for. DUP is set if the broker has sent the message before.
fn work(publish: &Publish) {
    let again = if publish.dup { " (sent again)" } else { "" };
    println!("{}: {}{again}", publish.topic, String::from_utf8_lossy(&publish.payload));
}
