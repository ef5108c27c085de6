//! MQTT over WebSocket: section 6.

use super::cases;
use crate::harness::Target;
use crate::support::V311;
use crate::websocket;

cases! {
    v311 {
        a_text_frame_closes: ["MQTT-6.0.0-1"],
        borders_of_frames_mean_nothing: ["MQTT-6.0.0-2"],
        handshake_reply_names_the_subprotocol: ["MQTT-6.0.0-4"],
    }
}

fn a_text_frame_closes(target: &Target) {
    websocket::a_text_frame_closes(target, V311);
}

fn borders_of_frames_mean_nothing(target: &Target) {
    websocket::borders_of_frames_mean_nothing(target, V311);
}

fn handshake_reply_names_the_subprotocol(target: &Target) {
    websocket::handshake_reply_names_the_subprotocol(target, V311);
}
