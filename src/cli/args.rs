//! The command line and the environment, read once: nothing deeper sees either.

use super::help::{TOPICS, Topic};
use crate::error::{Error, Result};
use lexopt::{Arg, Parser, ValueExt};
use log::LevelFilter;
use std::ffi::OsString;
use std::path::PathBuf;

/// The bounds of `--threads`.
pub const THREADS: std::ops::RangeInclusive<usize> = 1..=256;

/// All that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Invocation {
    /// `--db`, else `$FEEDMILL_DB`, else `feedmill.db`.
    pub db: PathBuf,
    /// `--log`, else `$FEEDMILL_LOG`, else info.
    pub log: LevelFilter,
    /// journald reads our standard error (`$JOURNAL_STREAM` is set, systemd.exec(5)).
    pub journal: bool,
    pub command: Command,
}

/// A command with its options.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Init,
    Run {
        once: bool,
        /// Within [`THREADS`]; `None`: as the settings say.
        threads: Option<usize>,
    },
    /// At least one URL, unread.
    Add {
        urls: Vec<String>,
    },
    Trace {
        url: String,
    },
    Discover {
        url: String,
    },
    Canonical {
        url: String,
    },
    Status {
        json: bool,
    },
    Check {
        /// Try the public callback URL too.
        callback: bool,
    },
    Revert {
        /// Above 0.
        feed_id: i64,
    },
    /// For one command or the whole program.
    Help(Option<&'static Topic>),
    Version,
}

/// Reads the arguments (without the program's name) and the environment, which is asked by name. All errors are
/// `Error::Usage`.
pub fn parse(args: impl IntoIterator<Item = OsString>, env: impl Fn(&str) -> Option<OsString>) -> Result<Invocation> {
    // Set but empty is how a variable is switched off in a service file.
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    let mut given = Given::default();
    let at_once = read(args, &mut given)?;
    let command = match at_once {
        Some(command) => command,
        None => given.command()?,
    };
    let log = match (&given.log, env("FEEDMILL_LOG")) {
        // Help must come whatever the environment says.
        _ if matches!(command, Command::Help(_) | Command::Version) => LevelFilter::Info,
        (Some(level), _) => level_of(level, "--log")?,
        (None, Some(level)) => level_of(&level.to_string_lossy(), "FEEDMILL_LOG")?,
        (None, None) => LevelFilter::Info,
    };
    let db = given.db.or_else(|| env("FEEDMILL_DB").map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("feedmill.db"));
    Ok(Invocation { db, log, journal: env("JOURNAL_STREAM").is_some(), command })
}

/// The arguments, sorted.
#[derive(Default)]
struct Given {
    db: Option<PathBuf>,
    log: Option<String>,
    topic: Option<&'static Topic>,
    operands: Vec<String>,
    once: bool,
    json: bool,
    callback: bool,
    threads: Option<usize>,
}

/// Sorts the arguments; `Some` for what ends the reading (help, version).
fn read(args: impl IntoIterator<Item = OsString>, given: &mut Given) -> Result<Option<Command>> {
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(usage)? {
        let command = given.topic.map_or("", |topic| topic.name);
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Some(Command::Help(given.topic))),
            Arg::Short('V') | Arg::Long("version") => return Ok(Some(Command::Version)),
            Arg::Long("db") => {
                let file = parser.value().map_err(usage)?;
                // SQLite would take it for a database that vanishes.
                if file.is_empty() {
                    return Err(Error::Usage("--db needs the name of a file".to_string()));
                }
                given.db = Some(PathBuf::from(file));
            }
            Arg::Long("log") => given.log = Some(parser.value().and_then(|value| value.string()).map_err(usage)?),
            Arg::Long("once") if command == "run" => given.once = true,
            Arg::Long("threads") if command == "run" => {
                let number = parser.value().and_then(|value| value.string()).map_err(usage)?;
                given.threads = number.parse().ok().filter(|threads| THREADS.contains(threads));
                if given.threads.is_none() {
                    let (least, most) = (THREADS.start(), THREADS.end());
                    return Err(Error::Usage(format!(
                        "--threads takes a number from {least} to {most}, not `{number}`"
                    )));
                }
            }
            Arg::Long("json") if command == "status" => given.json = true,
            Arg::Long("callback") if command == "check" => given.callback = true,
            Arg::Value(value) if given.topic.is_none() => {
                let name = value.string().map_err(usage)?;
                let topic = TOPICS.iter().find(|topic| topic.name == name);
                given.topic = Some(topic.ok_or_else(|| Error::Usage(format!("there is no command `{name}`")))?);
            }
            Arg::Value(value) => given.operands.push(value.string().map_err(usage)?),
            _ => return Err(usage(arg.unexpected())),
        }
    }
    Ok(None)
}

impl Given {
    fn command(&mut self) -> Result<Command> {
        let Some(topic) = self.topic else {
            return Err(Error::Usage("no command given".to_string()));
        };
        let mut operands = std::mem::take(&mut self.operands);
        if topic.name == "add" && !operands.is_empty() {
            return Ok(Command::Add { urls: operands });
        }
        let wanted = usize::from(matches!(topic.name, "add" | "trace" | "discover" | "canonical" | "revert"));
        if operands.len() != wanted {
            let form = format!("feedmill {} {}", topic.name, topic.operands);
            let wrong = if operands.len() < wanted { "something is missing" } else { "that is too much" };
            return Err(Error::Usage(format!("{wrong}: the command is `{}`", form.trim_end())));
        }
        let operand = operands.pop().unwrap_or_default();
        match topic.name {
            "init" => Ok(Command::Init),
            "run" => Ok(Command::Run { once: self.once, threads: self.threads }),
            "trace" => Ok(Command::Trace { url: operand }),
            "discover" => Ok(Command::Discover { url: operand }),
            "canonical" => Ok(Command::Canonical { url: operand }),
            "status" => Ok(Command::Status { json: self.json }),
            "check" => Ok(Command::Check { callback: self.callback }),
            "revert" => match operand.parse() {
                Ok(feed_id) if feed_id > 0 => Ok(Command::Revert { feed_id }),
                _ => Err(Error::Usage(format!("`{operand}` is not the id of a feed (feeds.id, a number)"))),
            },
            other => Err(Error::Usage(format!("there is no command `{other}`"))),
        }
    }
}

fn usage(error: lexopt::Error) -> Error {
    Error::Usage(error.to_string())
}

fn level_of(text: &str, from: &str) -> Result<LevelFilter> {
    text.parse().map_err(|_| Error::Usage(format!("{from} takes off, error, warn, info, debug or trace, not `{text}`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help;

    fn with_env(line: &str, env: &[(&str, &str)]) -> Result<Invocation> {
        let find = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        parse(line.split(' ').filter(|word| !word.is_empty()).map(OsString::from), find)
    }

    fn command(line: &str) -> Command {
        with_env(line, &[]).unwrap().command
    }

    fn refusal(line: &str) -> String {
        match with_env(line, &[]) {
            Err(Error::Usage(text)) => text,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn commands_with_their_options() {
        assert_eq!(command("init"), Command::Init);
        assert_eq!(command("run"), Command::Run { once: false, threads: None });
        assert_eq!(command("run --threads=8 --once"), Command::Run { once: true, threads: Some(8) });
        assert_eq!(command("add a b"), Command::Add { urls: vec!["a".to_string(), "b".to_string()] });
        assert_eq!(command("trace -- -a"), Command::Trace { url: "-a".to_string() });
        assert_eq!(command("discover a"), Command::Discover { url: "a".to_string() });
        assert_eq!(command("canonical a"), Command::Canonical { url: "a".to_string() });
        assert_eq!(command("status --json"), Command::Status { json: true });
        assert_eq!(command("check"), Command::Check { callback: false });
        assert_eq!(command("check --callback"), Command::Check { callback: true });
        assert_eq!(command("revert 17"), Command::Revert { feed_id: 17 });
    }

    #[test]
    fn every_topic_is_a_command_with_help_and_an_example() {
        for topic in &TOPICS {
            assert_eq!(command(&format!("{} --help", topic.name)), Command::Help(Some(topic)));
            assert!(!refusal(&format!("{} 1 2 3 --nonsense", topic.name)).contains("no command"), "{}", topic.name);
            let operands = if topic.operands.starts_with(['U', 'F']) { "1" } else { "" };
            command(&format!("{} {operands}", topic.name));
            assert!(help::text(Some(topic)).contains("Example"), "{}", topic.name);
            assert!(help::text(None).contains(topic.summary), "{}", topic.name);
        }
        assert_eq!(command("--help"), Command::Help(None));
        assert_eq!(command("-h"), Command::Help(None));
        assert_eq!(command("run -V"), Command::Version);
        for topic in TOPICS.iter().map(Some).chain([None]) {
            assert!(help::text(topic).lines().all(|line| line.chars().count() <= 100));
        }
    }

    #[test]
    fn the_command_line_beats_the_environment() {
        let env = [("FEEDMILL_DB", "env.db"), ("FEEDMILL_LOG", "WARN"), ("JOURNAL_STREAM", "8:1")];
        let given = with_env("status", &env).unwrap();
        assert_eq!((given.db, given.log, given.journal), (PathBuf::from("env.db"), LevelFilter::Warn, true));
        let given = with_env("--db a.db --log debug status", &env).unwrap();
        assert_eq!((given.db, given.log), (PathBuf::from("a.db"), LevelFilter::Debug));
        assert_eq!(with_env("status --db b.db", &env).unwrap().db, PathBuf::from("b.db"));
        let given = with_env("status", &[("FEEDMILL_DB", ""), ("FEEDMILL_LOG", ""), ("JOURNAL_STREAM", "")]).unwrap();
        assert_eq!((given.db, given.log, given.journal), (PathBuf::from("feedmill.db"), LevelFilter::Info, false));
        assert!(matches!(with_env("status", &[("FEEDMILL_LOG", "loud")]), Err(Error::Usage(_))));
        assert!(with_env("--help", &[("FEEDMILL_LOG", "loud")]).is_ok());
    }

    #[test]
    fn what_is_not_understood() {
        assert_eq!(refusal(""), "no command given");
        assert_eq!(refusal("fetch"), "there is no command `fetch`");
        assert_eq!(refusal("add"), "something is missing: the command is `feedmill add URL...`");
        assert_eq!(refusal("init x"), "that is too much: the command is `feedmill init`");
        assert!(refusal("run --threads 0").contains("1 to 256, not `0`"));
        assert!(refusal("revert x").contains("`x`"));
        assert!(refusal("--log loud status").contains("`loud`"));
        for line in
            ["trace", "trace a b", "revert", "revert 0", "revert -1", "init --once", "--json status", "run --once=1"]
        {
            refusal(line);
        }
        for line in ["run --threads", "run --threads 257", "run --threads x", "--db", "--db= status", "--bogus", "-x"] {
            refusal(line);
        }
    }

    #[cfg(unix)]
    #[test]
    fn file_names_need_not_be_text() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(b"\xff.db".to_vec());
        let args = ["--db".into(), odd.clone(), "init".into()];
        assert_eq!(parse(args, |_| None).unwrap().db, PathBuf::from(&odd));
        assert!(matches!(parse(["add".into(), odd], |_| None), Err(Error::Usage(_))));
    }
}
