//! Both drivers on their real engine against scripted servers, in memory, in virtual time, from seeds.
//!
#![doc = include_str!("../README.md")]

pub mod account;
pub mod client;
pub mod dice;
pub mod link;
pub mod log;
pub mod mysql;
pub mod postgres;
pub mod reports;
pub mod run;
pub mod server;
pub mod session;
pub mod text;
pub mod units;
pub mod watch;
pub mod weather;
pub mod world;
