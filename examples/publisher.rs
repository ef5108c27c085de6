//! A publisher that knows when the broker has taken its messages.
//!
//! The client publishes ten messages at QoS 1 and prints each acknowledgement. With a data
//! directory, the broker sends PUBACK once the message is on the disk of every stored session that
//! gets it.
//!
//! ```sh
//! cargo run --release                            # the broker, in another terminal
//! cargo run --example durable_consumer           # somebody who receives, in a third
//! cargo run --example publisher                  # or with a port: --example publisher 1884
//! ```

use rumqttc::{Client, Event, MqttOptions, Packet, QoS};
use std::error::Error;

const MESSAGES: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).map_or(Ok(1883), |text| text.parse())?;
    let options = MqttOptions::new("example-publisher", "127.0.0.1", port);
    let (client, mut connection) = Client::new(options, MESSAGES + 1);

    for number in 0..MESSAGES {
        client.publish("orders/new", QoS::AtLeastOnce, false, format!("order {number}"))?;
    }

    let mut acknowledged = 0;
    for event in connection.iter() {
        // An error ends this example. A real publisher would go on: the next event connects again,
        // and rumqttc sends again what was not acknowledged.
        if let Event::Incoming(Packet::PubAck(ack)) = event? {
            acknowledged += 1;
            println!("packet {} acknowledged, {acknowledged} of {MESSAGES}", ack.pkid);
            if acknowledged == MESSAGES {
                client.disconnect()?;
                break;
            }
        }
    }
    // The last steps of the connection write DISCONNECT, until the broker closes it.
    for event in connection.iter() {
        if event.is_err() {
            break;
        }
    }
    Ok(())
}
