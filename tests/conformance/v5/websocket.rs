//! MQTT over WebSocket: section 6.

use super::cases;
use super::stage::Stage;
use crate::support::V5;
use crate::websocket;

cases! {
    a_text_frame_closes: ["MQTT-6.0.0-1"],
    borders_of_frames_mean_nothing: ["MQTT-6.0.0-2"],
    handshake_reply_names_the_subprotocol: ["MQTT-6.0.0-4"],
}

fn a_text_frame_closes(stage: &Stage) {
    websocket::a_text_frame_closes(stage.target(), V5);
}

fn borders_of_frames_mean_nothing(stage: &Stage) {
    websocket::borders_of_frames_mean_nothing(stage.target(), V5);
}

fn handshake_reply_names_the_subprotocol(stage: &Stage) {
    websocket::handshake_reply_names_the_subprotocol(stage.target(), V5);
}
