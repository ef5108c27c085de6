//! Work in a shared group whose member ends its session between a message and its commit, with a
//! broker that is killed as soon as the publisher has its acknowledgement. Syncs take their time
//! (`SYNC_MS` of the `power_loss` shim), so there is a between.

use crate::support::client::Event;
use crate::support::{Connect, Kind, Message, PATIENCE, Packet, Property, RawClient, V5, now};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Milliseconds that a sync takes: longer than a message needs to its receiver and back.
const SYNC_MS: &str = "30";

const GROUP: &str = "$share/workers/work";
/// Messages that are published at once.
const BURST: u8 = 4;

/// The way in which a member leaves its messages to others.
#[derive(Clone, Copy, Debug)]
pub enum Leaves {
    /// DISCONNECT with a Session Expiry Interval of 0.
    ForGood,
    /// It comes back by another connection, with Clean Start.
    AndStartsAfresh,
    /// It refuses it, and whoever wants dead letters gets them.
    AfterRefusing,
}

fn stays(client_id: &str) -> Connect {
    Connect::new(V5, client_id).with(Property::SessionExpiry(3600))
}

/// A member that is away, and the session that gets dead letters.
pub fn prepare(address: SocketAddr) {
    for (client_id, filter) in [("keeper", GROUP), ("watcher", "$dead/#")] {
        let mut client = RawClient::connect(address, &stays(client_id));
        assert_eq!(client.subscribe(&[(filter, 1)]), [1]);
        client.disconnect();
    }
}

/// Publishes, has the only member that is there leave with all of it, and kills the broker at the
/// first PUBACK. Returns the messages that were acknowledged by then.
pub fn hand_out(address: SocketAddr, leaves: Leaves, kill: impl FnOnce()) -> BTreeSet<u8> {
    let mut member = RawClient::connect(address, &stays("member"));
    assert_eq!(member.subscribe(&[(GROUP, 1)]), [1]);
    let mut publisher = RawClient::connect(address, &Connect::new(V5, "publisher").clean(true));
    let ids: Vec<u16> = (1..=BURST).map(|n| publisher.publish(&Message::new("work", [n]).qos(1))).collect();
    let sent = member.expect_publishes(BURST.into());
    let mut afresh = RawClient::open(address, V5);
    match leaves {
        Leaves::ForGood => member.send(&[0xE0, 7, 0, 5, 0x11, 0, 0, 0, 0]),
        Leaves::AfterRefusing => sent.iter().for_each(|p| member.ack_with(Kind::Puback, p.id, 0x80)),
        Leaves::AndStartsAfresh => afresh.send(&stays("member").encode()),
    }
    let (mut acknowledged, mut kill, deadline) = (BTreeSet::new(), Some(kill), now() + PATIENCE);
    loop {
        match publisher.next(deadline) {
            Event::Packet(Packet::Ack(ack)) => {
                assert_eq!(ack.code, 0, "{ack:?}");
                if let Some(kill) = kill.take() {
                    kill();
                }
                let at = ids.iter().position(|id| *id == ack.id).expect("one of them");
                acknowledged.insert(at as u8 + 1);
            }
            Event::Packet(other) => panic!("{other:?}"),
            Event::Closed => {
                assert!(kill.is_none(), "closed before anything was acknowledged");
                return acknowledged;
            }
            Event::Silence => panic!("neither acknowledged nor closed"),
        }
    }
}

/// Returns the messages that came to the clients that were away. Returns at once when all that was
/// promised came, and otherwise after a sixth of [`PATIENCE`].
pub fn collect(address: SocketAddr, promised: &BTreeSet<u8>) -> BTreeSet<u8> {
    let back = |client_id| RawClient::connect(address, &stays(client_id).clean(false));
    let mut clients = ["keeper", "watcher", "member"].map(back);
    let (mut had, deadline) = (BTreeSet::new(), now() + PATIENCE / 6);
    while !promised.is_subset(&had) && now() < deadline {
        for client in &mut clients {
            if let Event::Packet(Packet::Publish(publish)) = client.next(now() + Duration::from_millis(20)) {
                had.insert(publish.payload[0]);
                client.ack(Kind::Puback, publish.id);
            }
        }
    }
    had
}

/// Sets `homing serve` up on a data directory, with dead letters for refused messages and slow
/// syncs.
pub fn slowly(command: &mut Command, shim: &Path, directory: &Path, threads: u64) {
    command
        .args(["--log-level", "warn", "--set", &format!("runtime.threads={threads}")])
        .args(["--set", "redelivery.negative_ack=true"])
        .arg("--data-dir")
        .arg(directory)
        .env("LD_PRELOAD", shim)
        .env("POWER_LOSS_SYNC_MS", SYNC_MS);
}

/// Every way to leave, with the number of threads that it is played with.
pub const WAYS: [(Leaves, u64); 3] =
    [(Leaves::ForGood, 2), (Leaves::AndStartsAfresh, 2), (Leaves::AfterRefusing, 1)];
