//! Retained messages: one per topic.
