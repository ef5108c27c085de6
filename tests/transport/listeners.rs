//! Several listeners with limits of their own.

use crate::kit::{self, Pki};
use homing::config::Listener;

#[test]
fn each_listener_has_its_own_limit_of_connections() {
    let pki = Pki::new();
    let one = Listener { connections: Some(1), ..kit::listener() };
    let secure = Listener { connections: Some(1), tls: Some(pki.tls()), ..kit::listener() };
    let broker = kit::start(vec![one, secure]);
    let [plain, secure] = broker.addresses() else { panic!("two listeners") };
    let mut first = kit::dial(*plain);
    kit::connect(&mut first);
    assert!(kit::is_closed(&mut kit::dial(*plain)), "the place is taken");
    let mut other = kit::tls_client(pki.client_config(None), "localhost", kit::dial(*secure));
    kit::exchange(&mut other, 10);
    assert!(kit::is_closed(&mut kit::dial(*secure)), "the place is taken");
    drop(other);
    // The place is free once the broker has seen the close.
    let is_free = || {
        let mut socket = kit::dial(*secure);
        socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).expect("a socket");
        // A listener with room waits for the ClientHello.
        matches!(std::io::Read::read(&mut socket, &mut [0; 8]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!((0..50).any(|_| is_free()));
}
