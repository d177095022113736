//! The one test crate: the real programs and the library against scripted servers, hubs and the `sqlite3` shell.

mod callback;
mod check;
mod cli;
mod moves;
mod push;
mod queue;
mod readme;
mod realhub;
mod redirects;
mod schema;
mod sql;
mod support;
mod support_works;
mod webservers;
mod websub;
