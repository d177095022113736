//! The log: one line an event, to standard error. Called once by `cli::run`; everything else uses the macros of `log`.

use crate::clock::Clock;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::io::Write;

struct Stderr {
    journal: bool,
}

/// Starts the log. With `journal` set, lines begin with systemd's `<priority>` (sd-daemon(3)), and journald adds the
/// time; else with the time (UTC) and the level. A second call changes the level only.
pub fn init(level: LevelFilter, journal: bool) {
    // Fails when a log was set before, as in tests.
    let _ = log::set_boxed_logger(Box::new(Stderr { journal }));
    log::set_max_level(level);
}

impl Log for Stderr {
    /// What the libraries say is for those who debug them: at `trace` only.
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.target().starts_with("feedmill") || log::max_level() == LevelFilter::Trace
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            let now = (!self.journal).then(|| Clock::System.now());
            let line = line(record.level(), &record.args().to_string(), now);
            // One write a line, so that lines of several threads don't mix. A log that is closed or full is no reason
            // to stop.
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// `now` is `None` for the journal. Control characters become blanks: messages quote servers.
fn line(level: Level, message: &str, now: Option<i64>) -> String {
    let message: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let priority = match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    match now {
        None => format!("<{priority}>{message}\n"),
        Some(now) => format!("{} {level:<5} {message}\n", rfc3339(now)),
    }
}

/// Unix seconds as `2026-01-31T23:59:59Z`. Howard Hinnant's `civil_from_days`; right for the years 0 to 9999.
pub fn rfc3339(at: i64) -> String {
    let (days, second) = (at.div_euclid(86400) + 719_468, at.rem_euclid(86400));
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months are counted from March, so that the leap day comes last.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (at, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_234_567_890, "2009-02-13T23:31:30Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(at), expected);
        }
    }

    #[test]
    fn one_printable_line_an_event() {
        assert_eq!(line(Level::Info, "a\nb\x1b[31mc\u{9b}d", Some(0)), "1970-01-01T00:00:00Z INFO  a b [31mc d\n");
        assert_eq!(line(Level::Warn, "a\r\n", None), "<4>a  \n");
        assert_eq!(line(Level::Error, "ä", None), "<3>ä\n");
    }
}
