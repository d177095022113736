#!/usr/bin/env bash
# contrib/once.sh URLFILE DB: subscribes what is new in URLFILE (one URL a line), makes every feed due, fetches once, exits.
# The database is made if it is not there. Set FEEDMILL to use another program than target/release/feedmill.
#
# For measuring: give every feed a host address of its own (127.1.2.3), as one host is asked for one feed after another,
# with the setting host_delay_ms between two.
set -euo pipefail

if [ $# -ne 2 ]; then
  echo "usage: contrib/once.sh URLFILE DB" >&2
  exit 2
fi
urls=$1 db=$2
feedmill=${FEEDMILL:-${CARGO_TARGET_DIR:-${BASH_SOURCE[0]%/*}/../target}/release/feedmill}
[ -r "$urls" ] || { echo "once.sh: cannot read $urls" >&2; exit 1; }
[ -x "$feedmill" ] || { echo "once.sh: no program at $feedmill; build it with: cargo build --release" >&2; exit 1; }

[ -s "$db" ] || "$feedmill" --db "$db" init >&2

# A name with a quote in it would end the string that the shell's .import reads.
case $urls in *[\"\\]*) echo "once.sh: a quote or backslash in the file's name: $urls" >&2; exit 1 ;; esac
# Only the shell's ascii mode takes a line as it is, quotes and commas in it too. An address that a feed left is not new.
sqlite3 -batch -bail -init /dev/null "$db" <<SQL
.timeout 5000
CREATE TEMP TABLE asked(url TEXT);
.mode ascii
.separator "\037" "\n"
.import "$urls" asked
BEGIN IMMEDIATE;
INSERT OR IGNORE INTO feeds(url)
  SELECT trim(url, char(9, 13, 32)) FROM asked
  WHERE trim(url, char(9, 13, 32)) <> ''
    AND trim(url, char(9, 13, 32)) NOT IN (SELECT url FROM feeds)
    AND trim(url, char(9, 13, 32)) NOT IN (SELECT old_url FROM feed_urls);
UPDATE jobs SET run_at = 0 WHERE kind = 'fetch' AND run_at <> 0 AND claimed_by IS NULL;
COMMIT;
SQL
exec "$feedmill" --db "$db" --log warn run --once
