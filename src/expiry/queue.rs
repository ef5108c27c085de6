//! The bucketed expiry queue.
