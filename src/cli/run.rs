//! `feedmill run`: the worker as a process: signals, the progress bar, the log.

use crate::clock::Clock;
use crate::error::{EXIT_OK, Error, Result};
use crate::worker::{self, Options, Progress, Worker};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Works until SIGTERM or SIGINT; with `once`, until all that is due is done. A second signal ends the process at once, with
/// code 1.
pub fn run(database: &Path, once: bool, threads: Option<usize>) -> Result<u8> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal finds the flag unset and sets it, the second finds it set and ends the process.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Error::Io("cannot listen for signals".into(), error))?;
    }
    worker::log_panics();
    let options = Options {
        database: database.to_path_buf(),
        threads,
        clock: Clock::System,
        names: None,
        roots_pem: super::roots()?,
    };
    let mut worker = Worker::new(options)?;
    if once {
        // A bar and a line for each feed would write over each other; whoever asks for more than the usual gets the lines.
        let shown = std::io::stderr().is_terminal() && log::max_level() <= log::LevelFilter::Info;
        let bar = shown.then(progress_bar);
        if shown {
            log::set_max_level(log::max_level().min(log::LevelFilter::Warn));
        }
        worker.run_once(&stop, &mut |progress: Progress| {
            if let Some(bar) = &bar {
                bar.set_length(progress.total as u64);
                bar.set_position(progress.done as u64);
            }
        })?;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
    } else {
        log::info!("feedmill {} works on {}", env!("CARGO_PKG_VERSION"), database.display());
        worker.run(&stop)?;
        log::info!("stopped");
    }
    Ok(EXIT_OK)
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
    // The template is a constant that is known to be right; without it the bar has its plain style.
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed} left {eta}") {
        bar.set_style(style);
    }
    bar
}
