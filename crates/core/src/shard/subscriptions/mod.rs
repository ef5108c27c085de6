//! Subscriptions: SUBSCRIBE and UNSUBSCRIBE, the routes, and the retained messages that follow.

pub(crate) mod retained_delivery;
pub(crate) mod routes;
pub(crate) mod suback;
pub(crate) mod subscribe;
pub(crate) mod subscribe_request;
