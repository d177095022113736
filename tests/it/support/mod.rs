//! What the tests stand on. Nothing here knows the inside of feedmill but `worker` and `cgi`.
#![allow(dead_code)] // Each test uses what it needs.

pub mod binary;
pub mod certificates;
pub mod cgi;
pub mod client;
pub mod feeds;
pub mod hub;
pub mod mill;
pub mod origin;
pub mod server;
pub mod shell;
pub mod webserver;
pub mod worker;
