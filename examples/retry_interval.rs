//! A 3.1.1 client that asks for its own retry interval, and reads what it was granted.
//!
//! The client publishes the interval to `$homing/session/retry-interval`, and subscribes to
//! `$homing/session/granted`. The request lasts with the session, and holds for what is sent from
//! then on. The client then withholds one acknowledgement, so that the message comes again.
//!
//! ```sh
//! cargo run --example retry_interval             # or with a port: --example retry_interval 1884
//! ```
//!
//! The whole run takes about four seconds. A 5.0 client asks for an ack timeout instead; see
//! `docs/redelivery.md`.

use rumqttc::{Client, Event, MqttOptions, Packet, QoS};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).map_or(Ok(1883), |text| text.parse())?;
    let mut options = MqttOptions::new("example-impatient", "127.0.0.1", port);
    options.set_manual_acks(true);
    let (client, mut connection) = Client::new(options, 10);

    client.publish("$homing/session/retry-interval", QoS::AtLeastOnce, false, "3s")?;
    client.subscribe("$homing/session/granted", QoS::AtMostOnce)?;
    client.subscribe("example/retry", QoS::AtLeastOnce)?;
    client.publish("example/retry", QoS::AtLeastOnce, false, "are you there?")?;

    for event in connection.iter() {
        let Event::Incoming(Packet::Publish(publish)) = event? else { continue };
        println!("{} DUP={} {}", publish.topic, publish.dup, String::from_utf8_lossy(&publish.payload));
        // The first transmission is left without PUBACK. The second one ends the example.
        if publish.dup {
            client.ack(&publish)?;
            client.disconnect()?;
            break;
        }
    }
    // The last steps of the connection write PUBACK and DISCONNECT.
    for event in connection.iter() {
        if event.is_err() {
            break;
        }
    }
    Ok(())
}
