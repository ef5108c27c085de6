//! The schemas of parameters and fields that are one of some words. The schemas of the core's types
//! are in the core.

use crate::admin::access::Scope;
use crate::admin::commands::ActionKind;
use crate::admin::pages::problems::BrokerProblemKind;
use crate::admin::queries::sessions::ListState;
use crate::admin::readiness::{BrokerPhase, StoreCheck, ThreadCheck};
use crate::admin::routes::bans::BanKind;
use crate::admin::routes::health::ReadinessStatus;
use crate::admin::routes::mosquitto::MosquittoProtocol;
use crate::admin::sourced_redelivery::SourceKind;
use crate::auth::passwd::HashChoice;
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
    BanKind;
    BrokerProblemKind;
    FileKind;
    HashChoice;
    MosquittoProtocol;
    MomentKind;
    BrokerPhase;
    ReadinessStatus;
    ReloadEffect;
    Scope;
    Severity;
    StoreCheck;
    SourceKind;
    ThreadCheck;
}
