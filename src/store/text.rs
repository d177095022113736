//! Text as any client may have written it: SQLite does not check that it is UTF-8, and one such value must not stop the worker.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};

/// Text of a column; what is not UTF-8 in it is read as U+FFFD.
pub struct Text(pub String);

impl FromSql for Text {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Text> {
        match value {
            ValueRef::Text(bytes) => Ok(Text(String::from_utf8_lossy(bytes).into_owned())),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}
