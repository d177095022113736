//! Standard output. A reader that has seen enough (`feedmill … | head -1`) is no failure: what is written after it left
//! goes nowhere, without a word.

use crate::error::{Error, Result};
use std::io::{self, ErrorKind, StdoutLock, Write};

/// Where a command's answer goes.
pub struct Output<W: Write> {
    to: W,
    closed: bool,
}

impl Output<StdoutLock<'static>> {
    /// Standard output, held until the value is dropped.
    pub fn stdout() -> Self {
        Output::new(io::stdout().lock())
    }
}

impl<W: Write> Output<W> {
    /// Output to any writer.
    pub fn new(to: W) -> Self {
        Output { to, closed: false }
    }

    /// The reader has left: a command with much to say may stop.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes `text` as it is, and sees it through. Fails as `Error::Io` for everything (a full disk) but a reader who
    /// left.
    pub fn text(&mut self, text: &str) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        match self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            Err(error) => Err(Error::Io("cannot write to standard output".to_string(), error)),
            Ok(()) => Ok(()),
        }
    }

    /// Writes one line.
    pub fn line(&mut self, line: &str) -> Result<()> {
        self.text(&format!("{line}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_no_failure_but_a_full_disk_is() {
        let mut left = Output::new(Failing(ErrorKind::BrokenPipe));
        assert!(!left.is_closed());
        left.line("a").unwrap();
        assert!(left.is_closed());
        left.line("b").unwrap();

        let mut full = Output::new(Failing(ErrorKind::StorageFull));
        assert!(matches!(full.line("a"), Err(Error::Io(..))));
        assert!(!full.is_closed());
    }
}
