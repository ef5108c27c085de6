//! A hundred reloads a second, and files that are half written.

use crate::support::pair::disturb;
use crate::support::process::Homing;
use crate::support::{Connect, RawClient, V5, now};
use crate::{MEANWHILE, signal, turn};
use rustix::process::Signal;
use std::fs;
use std::thread;
use std::time::Duration;

/// The time between two signals.
const PACE: Duration = Duration::from_millis(10);

#[test]
fn a_hundred_reloads_a_second_and_half_a_file_leave_the_pair_alone() {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("homing.toml");
    let whole = |maximum: u16| format!("[limits]\nreceive_maximum = {maximum}\n");
    fs::write(&file, whole(7)).expect("a writable folder");
    let config = file.display().to_string();
    let mut homing = Homing::serve(&["--ephemeral", "--log-level", "info", "--config", &config]);
    let (process, address) = (homing.process.id(), homing.address);
    let mut client = RawClient::connect(address, &Connect::new(V5, "connected"));
    let signals = disturb("reloads", address, MEANWHILE, |stage| {
        let (mut signals, begun) = (0, now());
        stage.begun();
        while stage.goes_on() {
            let text = whole(8 + signals % 2);
            let half = &text[..text.len() / 2];
            fs::write(&file, if signals % 3 == 0 { half } else { &text }).expect("a writable folder");
            signal(process, Signal::HUP);
            signals += 1;
            // A pace, no wait.
            thread::sleep(PACE);
        }
        println!("{signals} signals in {:.1?}", begun.elapsed());
        signals
    });
    assert!(signals > 0);
    homing.line_with("nothing is changed, because of a mistake");
    client.settle();
    fs::write(&file, whole(9)).expect("a writable folder");
    signal(process, Signal::HUP);
    // Reloads of the signals before may come first.
    while !homing.line_with("event=config.reloaded").contains("-> 9") {}
}
