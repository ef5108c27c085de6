//! Subscriptions and retained messages, as an operator sees them.

use crate::api::Administered;
use crate::http::request;
use crate::pages::{get, log_in};
use crate::support::{Connect, Message, RawClient, Version};

fn ctl(broker: &Administered, arguments: &[&str]) -> String {
    let (code, text) = broker.ctl(arguments);
    assert_eq!(code, Some(0), "{text}");
    text
}

#[test]
fn an_operator_sees_who_gets_a_topic_in_every_thread() {
    let broker = Administered::start();
    let mut clients: Vec<RawClient> = (0..6)
        .map(|n| RawClient::connect(broker.mqtt, &Connect::new(Version::V5, &format!("lamp-{n}"))))
        .collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.subscribe(&[(if n < 5 { "lamps/+" } else { "$share/g/lamps/#" }, 1)]);
    }
    let text = ctl(&broker, &["subscriptions", "--topic", "lamps/1"]);
    assert!((0..5).all(|n| text.contains(&format!("lamp-{n}"))) && !text.contains("lamp-5"), "{text}");
    assert!(text.lines().any(|line| line == "$share/g/lamps/#        1"), "{text}");
    assert!(ctl(&broker, &["subscriptions", "--client", "lamp-5"]).contains("$share/g/lamps/#"));
    assert_eq!(broker.ask("GET", "/api/v1/subscriptions", &broker.viewer).0, 400);
}

#[test]
fn an_operator_sees_who_has_a_filter_and_the_members_of_a_shared_group() {
    let broker = Administered::start();
    let mut clients: Vec<RawClient> = (0..6)
        .map(|n| RawClient::connect(broker.mqtt, &Connect::new(Version::V5, &format!("lamp-{n}"))))
        .collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.subscribe(&[(if n < 3 { "lamps/+" } else { "$share/g/lamps/+" }, 1)]);
    }
    let text = ctl(&broker, &["subscriptions", "--filter", "lamps/+"]);
    assert!((0..6).all(|n| text.contains(&format!("lamp-{n}")) == (n < 3)), "{text}");
    let text = ctl(&broker, &["subscriptions", "--filter", "$share/g/lamps/+"]);
    assert!((0..6).all(|n| text.contains(&format!("lamp-{n}")) == (n >= 3)), "{text}");
    // Another filter, though it matches the same topics.
    assert!(!ctl(&broker, &["subscriptions", "--filter", "lamps/#"]).contains("lamp-"));
    assert_eq!(broker.ask("GET", "/api/v1/subscriptions?filter=a/%23/b", &broker.viewer).0, 400);
    let two = "/api/v1/subscriptions?filter=a&client=b";
    assert_eq!(broker.ask("GET", two, &broker.viewer).0, 400);
    let cookie = log_in(&broker, &broker.viewer);
    let (status, page) = get(&broker, "/shared-groups", &cookie);
    assert!(status == 200 && page.contains("/topics?filter=%24share%2Fg%2Flamps%2F%2B"), "{page}");
    let (status, page) = get(&broker, "/topics?filter=%24share%2Fg%2Flamps%2F%2B", &cookie);
    assert!(status == 200 && page.contains("/clients/lamp-5") && !page.contains("/clients/lamp-0"), "{page}");
}

#[test]
fn the_shared_groups_are_listed_once_over_their_pages() {
    let broker = Administered::start();
    let mut client = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "worker"));
    let groups: Vec<String> = (0..25).map(|n| format!("$share/g{n:02}/jobs/#")).collect();
    client.subscribe(&groups.iter().map(|group| (group.as_str(), 1)).collect::<Vec<_>>());
    client.unsubscribe(&[&groups[7]]);
    let rows = broker.pages("/api/v1/shared-groups?limit=4", "shared_groups").concat();
    assert!(rows.iter().all(|row| row["members"] == 1), "{rows:?}");
    let mut seen: Vec<&str> = rows.iter().map(|row| row["filter"].as_str().expect("text")).collect();
    seen.sort_unstable();
    let left: Vec<String> = groups.into_iter().filter(|group| !group.contains("g07")).collect();
    assert_eq!(seen, left);
    assert_eq!(ctl(&broker, &["shared-groups"]).lines().count(), 1 + left.len());
    assert_eq!(broker.ask("GET", "/api/v1/shared-groups?cursor=x", &broker.viewer).0, 400);
}

#[test]
fn a_retained_message_is_listed_and_deleted_for_good() {
    let mut broker = Administered::start_with(&[]);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    for topic in ["lamps/1", "lamps/2", "pumps/1"] {
        publisher.deliver(&Message::new(topic, "on").qos(1).retained());
    }
    let text = ctl(&broker, &["retained", "lamps/#"]);
    assert!(text.contains("lamps/1") && text.contains("lamps/2") && !text.contains("pumps"), "{text}");
    assert_eq!(broker.ask("DELETE", "/api/v1/retained?topic=lamps/1", &broker.viewer).0, 403);
    ctl(&broker, &["retained", "--delete", "lamps/1"]);
    assert_eq!(broker.ask("DELETE", "/api/v1/retained?topic=lamps/1", &broker.operator).0, 404);
    assert_eq!(broker.ask("DELETE", "/api/v1/retained?topic=lamps/%23", &broker.operator).0, 400);
    let reserved = "/api/v1/retained?topic=%24SYS/broker/version";
    assert_eq!(broker.ask("DELETE", reserved, &broker.operator).0, 409);
    assert_eq!(broker.ask("GET", "/api/v1/retained?limit=0", &broker.viewer).0, 400);
    broker.kill_and_start(&[]);
    let text = ctl(&broker, &["retained", "lamps/#"]);
    assert!(!text.contains("lamps/1") && text.contains("lamps/2"), "{text}");
}

#[test]
fn a_name_of_the_interface_is_a_host_of_its_own() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "admin.hosts=broker.example.org"]);
    let asks = |host: &str| request(broker.admin, "GET", "/readyz", &format!("Host: {host}\r\n")).0;
    assert_eq!((asks("broker.example.org:11883"), asks("other.example.org")), (200, 403));
}
