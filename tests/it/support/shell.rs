//! The `sqlite3` program on a database file: what a user has. A machine without it fails the tests.

use serde_json::{Map, Value};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const MISSING: &str = "the `sqlite3` program is needed for these tests and could not be started";

#[derive(Debug, Clone)]
pub struct Sqlite3Shell {
    db: PathBuf,
}

impl Sqlite3Shell {
    pub fn new(db: &Path) -> Sqlite3Shell {
        Sqlite3Shell { db: db.to_path_buf() }
    }

    /// A new database from `schema.sql`, as `sqlite3 new.db < schema.sql` makes it.
    pub fn create(db: &Path) -> Sqlite3Shell {
        let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
        let shell = Sqlite3Shell::new(db);
        let text = std::fs::read_to_string(schema).expect("schema.sql");
        shell.feed(&[], &text).unwrap_or_else(|error| panic!("schema.sql: {error}"));
        shell
    }

    /// The lines of the answer, or what the shell says is wrong.
    pub fn try_run(&self, sql: &str) -> Result<Vec<String>, String> {
        self.feed(&[], sql)
    }

    /// The lines of the answer; an error fails the test.
    pub fn run(&self, sql: &str) -> Vec<String> {
        self.try_run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The rows of a query, with their types.
    pub fn rows(&self, sql: &str) -> Vec<Map<String, Value>> {
        let lines = self.feed(&["-json"], sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        match lines.is_empty() {
            true => Vec::new(),
            false => serde_json::from_str(&lines.join("\n")).unwrap_or_else(|error| panic!("{sql}: {error}")),
        }
    }

    /// The first column of every row.
    pub fn column(&self, sql: &str) -> Vec<Value> {
        self.rows(sql).into_iter().filter_map(|row| row.into_iter().next().map(|(_, value)| value)).collect()
    }

    /// The first column of the first row; null when there is no row.
    pub fn value(&self, sql: &str) -> Value {
        self.column(sql).into_iter().next().unwrap_or(Value::Null)
    }

    /// A shell that stays open, outside any transaction.
    pub fn open(&self) -> OpenShell {
        let mut child = self
            .command("sh", &["-c", "exec sqlite3 \"$@\" 2>&1", "sqlite3"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect(MISSING);
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        let mut shell = OpenShell { child, stdin, stdout };
        shell.run("SELECT 1;");
        shell
    }

    /// A shell that holds the write lock until it is dropped.
    pub fn lock(&self) -> OpenShell {
        let mut shell = self.open();
        shell.run("BEGIN IMMEDIATE;");
        shell
    }

    fn command(&self, program: &str, before: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(before).args(["-batch", "-init", "/dev/null", "-cmd", ".timeout 5000"]).arg(&self.db);
        command
    }

    fn feed(&self, options: &[&str], sql: &str) -> Result<Vec<String>, String> {
        let mut child = self
            .command("sqlite3", &[&["-bail"], options].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect(MISSING);
        // The shell stops reading at the first error.
        let _ = child.stdin.take().expect("its input").write_all(format!("{sql}\n;\n").as_bytes());
        let output = child.wait_with_output().expect("its end");
        let error = String::from_utf8_lossy(&output.stderr).trim().to_string();
        match output.status.success() && error.is_empty() {
            true => Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect()),
            false => Err(error),
        }
    }
}

/// A `sqlite3` held open, as in another terminal. Dropping it ends it, and rolls back what it had begun.
pub struct OpenShell {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl OpenShell {
    /// Waits until the shell has done it; the lines of the answer. An error fails the test.
    pub fn run(&mut self, sql: &str) -> Vec<String> {
        let stdin = self.stdin.as_mut().expect("its input");
        writeln!(stdin, "{sql}\n;\n.print ---done---").and_then(|()| stdin.flush()).expect(MISSING);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).expect("its output");
            assert!(read > 0, "{MISSING}, or it ended at: {sql}: {}", lines.join(" "));
            let line = line.trim_end_matches('\n').to_string();
            if line == "---done---" {
                break;
            }
            lines.push(line);
        }
        let wrong = ["Error", "Parse error", "Runtime error"];
        assert!(!lines.iter().any(|line| wrong.iter().any(|w| line.starts_with(w))), "{sql}: {}", lines.join(" "));
        lines
    }
}

impl Drop for OpenShell {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// A text as an SQL literal.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
