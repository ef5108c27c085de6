//! Subscriptions: SUBSCRIBE and UNSUBSCRIBE, the routes, and the retained messages that follow.

pub(crate) mod answer;
pub(crate) mod retained_order;
pub(crate) mod router;
pub(crate) mod routes;
pub(crate) mod suback;
pub(crate) mod subscribe;
pub(crate) mod subscribe_request;
