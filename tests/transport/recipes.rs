//! The recipes of `docs/recipes.md`: the broker starts with each of them without a warning about
//! its listeners, and a client that does what the recipe says enters.

use crate::kit::{self, CONNACK, CONNECT, Pki};
use crate::support::{Connect, Property, V5, password_file};
use crate::websocket::{Stream, upgrade_with};
use homing::broker::Broker;
use homing::config::{Config, Sources};
use std::io::{Read, Write};
use std::net::SocketAddr;

const DOCUMENT: &str = include_str!("../../docs/recipes.md");

const PAGE: (&str, &str) = ("Origin", "https://dashboard.example");

/// The recipes have so many configurations.
const RECIPES: usize = 7;

/// Returns the configurations of the recipes.
fn recipes() -> Vec<&'static str> {
    let blocks = DOCUMENT.split("\n```toml\n").skip(1);
    blocks.map(|rest| rest.split_once("\n```").expect("a block ends").0).collect()
}

/// Writes the files that the recipes name.
fn files(pki: &Pki) {
    pki.server("fullchain", &["localhost"]);
    pki.write("privkey.pem", &std::fs::read_to_string(pki.path("fullchain.key")).expect("a key"));
    pki.write("devices-ca.pem", &std::fs::read_to_string(pki.path("ca.pem")).expect("a certificate"));
    pki.revoke("revoked.crl", &[4_711]);
    pki.write("acl", "pattern readwrite devices/%u/#\n");
    pki.write("passwd", &password_file(&[("c", "secret")]));
    pki.write("tenant-a.passwd", &password_file(&[("ann", "secret")]));
    pki.write("tenant-b.passwd", &password_file(&[("bob", "secret")]));
}

/// Returns the configuration of a recipe, on free ports, with the files of the test, and with this
/// machine in place of the proxies.
fn configuration(pki: &Pki, recipe: &str) -> Config {
    let folder = pki.text_path("");
    let text = recipe.replace("/etc/homing/", &folder).replace("\"10.0.0.2\"", "\"127.0.0.1\"");
    let lines = text.lines().map(|line| match line.strip_prefix("address = \"") {
        Some(address) if address.starts_with("127.") => "address = \"127.0.0.1:0\"",
        Some(_) => "address = \"0.0.0.0:0\"",
        None => line,
    });
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    pki.write("homing.toml", &text);
    let loaded = Sources::new().file(pki.path("homing.toml")).load();
    loaded.unwrap_or_else(|refusal| panic!("{:?}: {text}", refusal.0)).config
}

/// Connects a client as the recipe of the listener says.
fn enter(pki: &Pki, listener: &str, port: u16) {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let tls = |identity| kit::tls_client(pki.client_config(identity), "localhost", kit::dial(address));
    let login = kit::login("c", "c", "secret");
    match listener {
        "tls" => answers(&mut tls(None), &login, &CONNACK),
        "fleet" => {
            let identity = pki.client("c");
            answers(&mut tls(Some(&identity)), CONNECT, &CONNACK);
            let other = kit::login("other", "c", "secret");
            answers(&mut tls(Some(&identity)), &other, &[0x20, 2, 0, 2]);
        }
        "behind-haproxy" => {
            let header =
                b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x11\xd7\x07\x5b";
            answers(&mut kit::dial(address), &[header, &login[..]].concat(), &CONNACK);
        }
        "browsers" => {
            let socket = upgrade_with(tls(None), address, "/mqtt", &[PAGE]).expect("an upgrade");
            answers(&mut Stream::new(socket), &login, &CONNACK);
        }
        "behind-nginx" => {
            let headers = [PAGE, ("X-Forwarded-For", "192.0.2.7")];
            let socket = upgrade_with(kit::dial(address), address, "/mqtt", &headers).expect("an upgrade");
            answers(&mut Stream::new(socket), &login, &CONNACK);
        }
        "devices" => {
            let connect = Connect::new(V5, "c")
                .with(Property::AuthenticationMethod("SCRAM-SHA-256".into()))
                .with(Property::AuthenticationData(b"n,,n=c,r=nonce".to_vec()));
            // AUTH with a challenge.
            answers(&mut tls(None), &connect.encode(), &[0xF0]);
            let mut plain = tls(None);
            answers(&mut plain, &login, &[0x20, 2, 0, 5]);
        }
        "tenant-a" => answers(&mut tls(None), &kit::login("tenant-a-1", "ann", "secret"), &CONNACK),
        "tenant-b" => answers(&mut tls(None), &kit::login("tenant-b-1", "bob", "secret"), &CONNACK),
        other => panic!("no client for the listener {other}"),
    }
}

fn answers(stream: &mut (impl Read + Write), sent: &[u8], expected: &[u8]) {
    stream.write_all(sent).expect("open");
    assert_eq!(kit::read(stream, expected.len()), expected);
}

#[test]
fn each_recipe_of_the_documents_starts_and_lets_its_clients_in() {
    let pki = Pki::new();
    files(&pki);
    let recipes = recipes();
    assert_eq!(recipes.len(), RECIPES);
    for recipe in recipes {
        let broker = Broker::start(configuration(&pki, recipe)).expect("it starts");
        for (listener, address) in broker.listeners().iter().zip(broker.addresses()) {
            let name = listener.name.as_deref().expect("a name");
            assert_eq!(listener.risk(), None, "{name}");
            enter(&pki, name, address.port());
        }
    }
}
