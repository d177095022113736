//! The help texts: one place, from which `args` also takes the commands' names.

/// A command as it is explained.
#[derive(Debug, PartialEq, Eq)]
pub struct Topic {
    pub name: &'static str,
    /// What stands after the name.
    pub operands: &'static str,
    /// One line, for the list.
    pub summary: &'static str,
    /// The rest: sentences, options, an example.
    pub details: &'static str,
}

/// All commands there are, in the order in which one meets them.
pub const TOPICS: [Topic; 9] = [
    Topic {
        name: "init",
        operands: "",
        summary: "create the database, or bring an older one up to date",
        details: "\
An older database is changed in place; a copy of it is kept beside it.

Example:
  feedmill --db feeds.db init
",
    },
    Topic {
        name: "run",
        operands: "[--once] [--threads N]",
        summary: "the worker: fetch what is due, until stopped",
        details: "\
On SIGTERM or SIGINT it takes no new work, and finishes or gives back what is in flight within
10 seconds.

  --once        run all that is due, then exit with code 0 even if feeds failed: they say so in
                the database
  --threads N   fetch on N threads, 1 to 256 (default: the setting `threads`)

Examples:
  feedmill --db feeds.db run
  feedmill --db feeds.db run --once
",
    },
    Topic {
        name: "add",
        operands: "URL...",
        summary: "add feeds, or pages that announce one",
        details: "\
The same as INSERT INTO feeds(url). A feed that is there already is left as it is.

Example:
  feedmill --db feeds.db add https://example.org/feed.xml example.net
",
    },
    Topic {
        name: "trace",
        operands: "URL",
        summary: "show where a URL leads, and its permanent location",
        details: "\
One line a response: status, URL and, for a redirect, where it points. The last line is the
permanent location: where the permanent redirects (301, 308) at the beginning lead. Touches no
database.

Example:
  feedmill trace http://example.org/feed
",
    },
    Topic {
        name: "discover",
        operands: "URL",
        summary: "list the feeds that a page announces, best first",
        details: "\
One URL a line. Exit code 1 when there is none. Touches no database.

Example:
  feedmill discover https://example.org/ | head -1
",
    },
    Topic {
        name: "canonical",
        operands: "URL",
        summary: "show the canonical form of a URL",
        details: "\
A second line, if there is one, is the publisher's spelling. Touches neither network nor database.

Example:
  feedmill canonical 'http://feeds2.feedburner.com/Name/?format=xml'
",
    },
    Topic {
        name: "status",
        operands: "[--json]",
        summary: "feeds, queue, failures, pushes and hubs at a glance",
        details: "
  --json        for programs

Example:
  feedmill --db feeds.db status
",
    },
    Topic {
        name: "check",
        operands: "[--callback]",
        summary: "what is wrong with database, permissions and callback",
        details: "\
One line a problem, each with the command that mends it. Exit code 1 when there is one. Looks,
and mends nothing itself.

  --callback    also try the public URL in the setting callback_url, as a hub would: web server,
                program, permissions, size limits and TLS

Example:
  feedmill --db feeds.db check --callback
",
    },
    Topic {
        name: "revert",
        operands: "FEED_ID",
        summary: "undo the last change of a feed's URL, and hold it",
        details: "\
The URL that was left is not moved to again. FEED_ID is feeds.id.

Example:
  feedmill --db feeds.db revert 17
",
    },
];

const OPTIONS: &str = "\
Options:
  --db FILE     the database (default: $FEEDMILL_DB, else feedmill.db)
  --log LEVEL   off, error, warn, info, debug or trace (default: $FEEDMILL_LOG, else info)
  -h, --help    help, also for one command: feedmill COMMAND --help
  -V, --version the version
";

/// The help of one command, or of the whole program.
pub fn text(topic: Option<&Topic>) -> String {
    match topic {
        Some(Topic { name, operands, summary, details }) => {
            let usage = format!("feedmill [--db FILE] [--log LEVEL] {name} {operands}");
            format!(
                "feedmill {name}: {summary}\n\nUsage: {}\n\n{}\n{OPTIONS}",
                usage.trim_end(),
                details.trim_start_matches('\n')
            )
        }
        None => {
            let list: String = TOPICS.iter().map(|topic| format!("  {:<11} {}\n", topic.name, topic.summary)).collect();
            format!(
                "feedmill {}: keeps feed subscriptions alive in one SQLite file\n\n\
                 Usage: feedmill [--db FILE] [--log LEVEL] COMMAND ...\n\n\
                 Commands:\n{list}\n{OPTIONS}\n\
                 Exit codes: 0 done, 1 failed, 2 not understood.\n\n\
                 Example:\n  feedmill --db feeds.db init && feedmill --db feeds.db run\n",
                env!("CARGO_PKG_VERSION")
            )
        }
    }
}
