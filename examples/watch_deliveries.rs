//! An operator's watch: it prints dead letters and client events.
//!
//! Both are off by default. Start the broker with them:
//!
//! ```sh
//! cargo run --release -- --set sys.events=true \
//!     --set redelivery.dead_letters=expired,queue_refused,session_ended
//! cargo run --example watch_deliveries           # or with a port: --example watch_deliveries 1884
//! ```
//!
//! The client speaks MQTT 5.0, because the reason of a dead letter is in its user properties. The
//! events are JSON, and `docs/client-events.md` has their fields. The example `stuck_client` causes
//! some.

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, Publish};
use rumqttc::v5::{Client, Event, MqttOptions};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).map_or(Ok(1883), |text| text.parse())?;
    let options = MqttOptions::new("example-watch", "127.0.0.1", port);
    let (client, mut connection) = Client::new(options, 10);

    client.subscribe("$dead/#", QoS::AtLeastOnce)?;
    client.subscribe("$homing/events/+/+", QoS::AtMostOnce)?;

    for event in connection.iter() {
        if let Event::Incoming(Packet::Publish(publish)) = event? {
            print(&publish);
        }
    }
    Ok(())
}

fn print(publish: &Publish) {
    println!("{}", String::from_utf8_lossy(&publish.topic));
    for (name, value) in publish.properties.iter().flat_map(|properties| &properties.user_properties) {
        println!("  {name}: {value}");
    }
    println!("  {}", String::from_utf8_lossy(&publish.payload));
}
