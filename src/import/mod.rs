//! Configurations of other brokers, translated for Homing.

pub mod mosquitto;
