//! The schemas of parameters and fields that are one of some words. The schemas of the core's types
//! are in the core.

use crate::admin::access::Scope;
use crate::admin::commands::ActionKind;
use crate::admin::pages::problems::BrokerProblemKind;
use crate::admin::queries::sessions::ListState;
use crate::admin::readiness::{Phase, StoreCheck, ThreadCheck};
use crate::admin::routes::health::ReadinessStatus;
use crate::admin::routes::mosquitto::ListenerProtocol;
use crate::admin::sourced_redelivery::SourceKind;
use crate::broker::events::moments::MomentKind;
use crate::broker::file_news::FileKind;
use crate::config::ReloadEffect;
use crate::finding::Severity;
use homing_core::schema::words;

words! {
    ListState: ListState::Away, Some(ListState::All);
}

words! {
    ActionKind;
    BrokerProblemKind;
    FileKind;
    ListenerProtocol;
    MomentKind;
    Phase;
    ReadinessStatus;
    ReloadEffect;
    Scope;
    Severity;
    StoreCheck;
    SourceKind;
    ThreadCheck;
}
