//! Unix sockets.

use crate::kit;
use std::os::unix::net::UnixStream;

#[test]
fn packets_of_every_size_cross_a_unix_socket_and_its_file_goes_with_the_broker() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("homing.sock");
    let mut broker = kit::start(vec![kit::unix_listener(path.clone())]);
    assert_eq!(broker.addresses(), []);
    let mut stream = UnixStream::connect(&path).expect("it listens");
    stream.set_read_timeout(Some(kit::PATIENCE)).expect("a socket");
    kit::exchange(&mut stream, 1_000_000);
    drop(stream);
    broker.shutdown();
    assert!(!path.exists());
}
