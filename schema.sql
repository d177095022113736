-- feedmill's database: the public interface.
--
--   sqlite3 feeds.db < schema.sql          makes a new database, the same as `feedmill --db feeds.db init`
--
-- You write `feeds`, `settings`, `pending_moves.approved` and `jobs.run_at`; everything else is there to be read.
-- The worker notices what you commit within a quarter of a second. Say `.timeout 5000` first in the sqlite3 shell: it does
-- not wait for a lock by itself.
--
--   INSERT INTO feeds(url) VALUES ('https://example.org/');          a site or a feed; fetched at once
--   SELECT * FROM feed_status;                                       how they are
--   SELECT id, title, url FROM entries WHERE id > 1200 ORDER BY id;  what is new since entry 1200
--   UPDATE jobs SET run_at = 0 WHERE feed_id = 7;                    fetch feed 7 now
--   UPDATE feeds SET state = 'paused' WHERE folder = 'later';        and 'active' to go on
--   DELETE FROM feeds WHERE id = 7;                                  its entries go too, its hub is told
--
-- Columns that end in `_at` are Unix seconds: datetime(x, 'unixepoch') shows them in UTC. Works from SQLite 3.37 on.

PRAGMA journal_mode = WAL;
PRAGMA application_id = 1718446444;  -- 'fmil': this file is feedmill's
PRAGMA user_version = 1;             -- the version of this schema

BEGIN;

------------------------------------------------------------------------------------------------------------------------
-- What you subscribe to

CREATE TABLE feeds (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  url             TEXT NOT NULL UNIQUE,  -- a feed, or a site that names one; the only column you must give. The worker
                                         -- rewrites it when the feed has moved for good; every change is in feed_urls
  pretty_url      TEXT,                  -- the publisher's own spelling, where `url` is a canonical form (FeedBurner)
  site_url        TEXT,                  -- the page that belongs to the feed
  title           TEXT,                  -- yours, or the feed's own where you left it NULL
  folder          TEXT,                  -- yours, for sorting
  state           TEXT NOT NULL DEFAULT 'active'
                  CHECK (state IN ('active',    -- fetched
                                   'paused',    -- you stopped it
                                   'gone',      -- the server said 410 twice, a day apart; set 'active' to try again
                                   'merged',    -- the same feed as row `merged_into`
                                   'invalid')), -- `url` cannot be used; failure_message says why
  merged_into     INTEGER,               -- the row that goes on for this one
  keep_url        INTEGER NOT NULL DEFAULT 0 CHECK (keep_url IN (0, 1)),  -- 1: never rewrite `url`
  interval_seconds INTEGER CHECK (interval_seconds BETWEEN 60 AND 31536000),  -- how often to fetch; NULL: min_interval_s
  hub_url         TEXT,                  -- a hub to subscribe to although the feed names none, or another
  etag            TEXT,                  -- validators of the last good answer ...
  last_modified   TEXT,
  validators_url  TEXT,                  -- ... and the URL that issued them; they are sent to no other
  last_fetched_at INTEGER,
  last_success_at INTEGER,               -- NULL: this url never gave a feed
  last_status     INTEGER,               -- HTTP status of the last response; NULL: none came
  failure_kind    TEXT,                  -- why the last fetch failed; NULL: it did not. The kinds are in the README
  failure_message TEXT,
  failure_count   INTEGER NOT NULL DEFAULT 0,  -- failures since the last success
  created_at      INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)),
  failing_since   INTEGER,               -- first failure since the last success
  rewritten_at    INTEGER,               -- the last rewrite of `url` by the worker
  rewrites        INTEGER NOT NULL DEFAULT 0,  -- how many; it also tells the worker's rewrites from your edits
  url_key         TEXT,                  -- `url` as it is compared with others; NULL: not looked at yet
  body_hash       INTEGER                -- of the last document that was parsed: the same bytes are not parsed again
) STRICT;
CREATE INDEX feeds_url_key ON feeds(url_key);
CREATE INDEX feeds_merged_into ON feeds(merged_into) WHERE merged_into IS NOT NULL;

-- The history of feeds.url.
CREATE TABLE feed_urls (
  id         INTEGER PRIMARY KEY,
  feed_id    INTEGER NOT NULL,
  old_url    TEXT NOT NULL,
  new_url    TEXT NOT NULL,
  reason     TEXT NOT NULL
             CHECK (reason IN ('canonical',   -- another spelling of the same address
                               'discovered',  -- the page named this feed
                               'moved',       -- permanent redirects led there
                               'merged',      -- another row held the address already
                               'reverted',    -- the new address failed and the old one still worked, or `feedmill revert`
                               'edited')),    -- you changed it
  statuses   TEXT,                            -- of the fetch that led to it: 301,301,302,200
  changed_at INTEGER NOT NULL
) STRICT;
CREATE INDEX feed_urls_feed ON feed_urls(feed_id, changed_at);

-- Permanent redirects that are not believed yet: the document at the new address shares nothing with what is known of the
-- feed. Believed after 3 sightings over 24 hours, or when you set approved = 1. Meanwhile the feed is read through them.
CREATE TABLE pending_moves (
  feed_id       INTEGER PRIMARY KEY,
  target_url    TEXT NOT NULL,
  first_seen_at INTEGER NOT NULL,
  sightings     INTEGER NOT NULL DEFAULT 1,
  why           TEXT NOT NULL,                -- what it waits for
  approved      INTEGER NOT NULL DEFAULT 0 CHECK (approved IN (0, 1)),
  target_host   TEXT NOT NULL,                -- many feeds waiting for one host at once are a portal, not a move
  had_entries   INTEGER NOT NULL DEFAULT 1 CHECK (had_entries IN (0, 1))  -- something was stored before the first sighting
) STRICT;
CREATE INDEX pending_moves_host ON pending_moves(target_host);

-- Addresses that a feed was taken back from (`revert`, or because they failed): not moved to again until the row is deleted.
CREATE TABLE held_targets (
  feed_id    INTEGER NOT NULL,
  target_url TEXT NOT NULL,
  held_at    INTEGER NOT NULL,
  PRIMARY KEY (feed_id, target_url)
) STRICT, WITHOUT ROWID;

-- The other feeds that a page named when one was chosen. INSERT INTO feeds(url) SELECT url FROM discovered_feeds WHERE ...
CREATE TABLE discovered_feeds (
  feed_id    INTEGER NOT NULL,
  url        TEXT NOT NULL,
  title      TEXT,
  media_type TEXT,
  position   INTEGER NOT NULL,  -- 1 = the best of the rest
  PRIMARY KEY (feed_id, url)
) STRICT, WITHOUT ROWID;

------------------------------------------------------------------------------------------------------------------------
-- What came

CREATE TABLE entries (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,  -- only grows: remember the last one you read
  feed_id       INTEGER NOT NULL,
  guid          TEXT NOT NULL,      -- the entry's identity inside its feed: its own id, else its link, else a hash
  fingerprint   INTEGER NOT NULL DEFAULT 0,  -- of all that is stored: equal means unchanged
  first_seen_at INTEGER NOT NULL,
  changed_at    INTEGER NOT NULL,   -- first_seen_at until the publisher changes something
  published_at  INTEGER,            -- as the feed says; a date in the future is cut to when the entry was seen
  updated_at    INTEGER,
  arrived_by    TEXT NOT NULL DEFAULT 'fetch' CHECK (arrived_by IN ('fetch', 'push')),
  url           TEXT,
  title         TEXT,
  author        TEXT,
  summary       TEXT,
  content       TEXT,
  UNIQUE (feed_id, guid)
) STRICT;

CREATE TABLE enclosures (
  entry_id   INTEGER NOT NULL,
  url        TEXT NOT NULL,
  media_type TEXT,
  length     INTEGER,               -- bytes, as announced
  PRIMARY KEY (entry_id, url)
) STRICT, WITHOUT ROWID;

-- The log, oldest first; rows older than the setting fetch_log_days go.
CREATE TABLE fetches (
  id          INTEGER PRIMARY KEY,
  feed_id     INTEGER NOT NULL,
  fetched_at  INTEGER NOT NULL,
  status      INTEGER,              -- of the last response; NULL: none came
  statuses    TEXT,                 -- of all, in order
  final_url   TEXT,                 -- NULL: the feed's own url
  bytes       INTEGER NOT NULL,     -- of bodies, on the wire
  duration_ms INTEGER NOT NULL,
  outcome     TEXT NOT NULL CHECK (outcome IN ('new', 'unchanged', 'moved', 'merged', 'discovered', 'failed')),
  new_entries INTEGER NOT NULL DEFAULT 0,
  message     TEXT
) STRICT;

------------------------------------------------------------------------------------------------------------------------
-- What is to be done

-- One row for each active feed, and for each subscription and kind of work on it; rescheduled in place.
CREATE TABLE jobs (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  kind             TEXT NOT NULL CHECK (kind IN ('fetch', 'subscribe', 'renew', 'unsubscribe', 'ingest')),
  feed_id          INTEGER,
  subscription_id  INTEGER,
  run_at           INTEGER NOT NULL DEFAULT 0,  -- when it is due; 0 = now
  attempts         INTEGER NOT NULL DEFAULT 0,  -- claims so far
  claimed_by       TEXT,                        -- the worker that has it now
  claim_expires_at INTEGER,
  last_error       TEXT
) STRICT;
-- The two halves of the queue. A query uses them only with these very words in its WHERE.
CREATE INDEX jobs_due ON jobs(run_at) WHERE claimed_by IS NULL;
CREATE INDEX jobs_claimed ON jobs(claim_expires_at) WHERE claimed_by IS NOT NULL;
CREATE UNIQUE INDEX jobs_of_feed ON jobs(feed_id) WHERE kind = 'fetch';
CREATE UNIQUE INDEX jobs_of_subscription ON jobs(subscription_id, kind) WHERE subscription_id IS NOT NULL;

-- Hosts (with port) that asked to be left alone: nothing is fetched there before hold_until. Delete the row to end it.
CREATE TABLE hosts (
  host       TEXT PRIMARY KEY,
  hold_until INTEGER NOT NULL,
  reason     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

------------------------------------------------------------------------------------------------------------------------
-- Push (WebSub): hubs tell us when a feed has something new

CREATE TABLE subscriptions (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  feed_id          INTEGER,            -- NULL: the feed was deleted; the row stays as a tombstone until the hub is told
  hub_url          TEXT NOT NULL,
  topic_url        TEXT NOT NULL,      -- the hub's name for the feed; need not be feeds.url
  callback_token   TEXT NOT NULL UNIQUE DEFAULT (lower(hex(randomblob(32)))),  -- callback_url + '/' + this
  secret           TEXT,               -- signs what the hub sends; NULL: a hub without https, whose word is only a hint
  previous_secret  TEXT,               -- valid beside `secret` until a delivery signed with the new one came
  verify_token     TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))),
  state            TEXT NOT NULL DEFAULT 'pending'
                   CHECK (state IN ('pending',       -- asked for, not confirmed yet
                                    'active',        -- confirmed by the hub
                                    'unsubscribing', -- to be ended, or being ended
                                    'ended',         -- over; kept 30 days to answer late questions
                                    'denied',        -- the hub said no to a subscription it had taken
                                    'refused')),     -- the hub did not take it
  lease_seconds    INTEGER,            -- as granted
  lease_expires_at INTEGER,
  requested_at     INTEGER,            -- our last request
  verified_at      INTEGER,            -- the hub's last confirmation
  last_delivery_at INTEGER,
  last_error       TEXT,
  renewing         INTEGER NOT NULL DEFAULT 0 CHECK (renewing IN (0, 1)),  -- 1: asked again, not confirmed again yet
  requests         INTEGER NOT NULL DEFAULT 0,  -- that reached the hub, since the last confirmation
  failures         INTEGER NOT NULL DEFAULT 0,  -- requests in a row that failed
  rung             INTEGER NOT NULL DEFAULT 0,  -- how far down the ladder of request forms this hub pushed us
  good_pushes      INTEGER NOT NULL DEFAULT 0,
  bad_pushes       INTEGER NOT NULL DEFAULT 0,  -- refused: unsigned, wrongly signed, too large
  misses           INTEGER NOT NULL DEFAULT 0,  -- polls since the last good push that found what the hub should have sent
  hinted_at        INTEGER,            -- last time an unverifiable delivery caused a poll, or the time it will cause one
  replaces         INTEGER,            -- the subscription that is ended once this one is confirmed
  ended_at         INTEGER,
  active_since     INTEGER,            -- the first confirmation
  named_topic      TEXT,               -- the topic as the feed names it; topic_url differs where the hub refused that
  fetched_url      TEXT,               -- where the feed was read: the topic to try when the hub refuses the named one
  absences         INTEGER NOT NULL DEFAULT 0,  -- polls in a row in which the feed did not name the hub; ended at 2
  private_hub      INTEGER NOT NULL DEFAULT 0 CHECK (private_hub IN (0, 1))  -- 1: asked at a private address; there it is
                                       -- also told when the feed, which allowed that, is gone
) STRICT;
CREATE INDEX subscriptions_feed ON subscriptions(feed_id);

-- The hubs that a feed names, best first. The first that does not refuse gets the subscription; feeds.hub_url goes before.
CREATE TABLE feed_hubs (
  feed_id     INTEGER NOT NULL,
  position    INTEGER NOT NULL,        -- 1 = the first in the feed
  hub_url     TEXT NOT NULL,
  topic_url   TEXT NOT NULL,           -- rel=self, else where the feed was read
  fetched_url TEXT NOT NULL,           -- where the feed was read
  PRIMARY KEY (feed_id, position)
) STRICT, WITHOUT ROWID;

-- What each hub is known to want.
CREATE TABLE hubs (
  hub_url         TEXT PRIMARY KEY,
  moved_to        TEXT,                -- a 308 led there, or https works where http was advertised
  no_https        INTEGER NOT NULL DEFAULT 0 CHECK (no_https IN (0, 1)),  -- https was tried and cannot be connected to
  without_lease   INTEGER NOT NULL DEFAULT 0 CHECK (without_lease IN (0, 1)),  -- refuses hub.lease_seconds
  next_request_at INTEGER NOT NULL DEFAULT 0,  -- one request at a time, a second apart; later after Retry-After
  queue_until     INTEGER NOT NULL DEFAULT 0,  -- the last second that is given to a request which waits for that
  failures        INTEGER NOT NULL DEFAULT 0,  -- in a row
  last_error      TEXT
) STRICT, WITHOUT ROWID;

-- Deliveries that the callback took and the worker has not read yet.
CREATE TABLE deliveries (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  subscription_id INTEGER NOT NULL,
  received_at     INTEGER NOT NULL,
  content_type    TEXT,
  link            TEXT,                -- the Link header fields
  body            BLOB NOT NULL
) STRICT;
CREATE INDEX deliveries_subscription ON deliveries(subscription_id);

------------------------------------------------------------------------------------------------------------------------
-- Settings: a running worker obeys within seconds

CREATE TABLE settings (
  key         TEXT PRIMARY KEY,
  value       TEXT NOT NULL,
  description TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO settings(key, value, description) VALUES
  ('callback_url', '', 'Public http(s) URL of feedmill-callback, without a slash at the end. Empty: no push.'),
  ('contact', '', 'A URL or e-mail address for publishers, shown in the User-Agent. At most 200 printable ASCII characters.'),
  ('threads', '32', 'Fetches at the same time, 1 to 256. Read when the worker starts.'),
  ('host_concurrency', '2', 'Fetches at the same time from one host, 1 to 64.'),
  ('host_delay_ms', '500', 'Milliseconds between two starts at one host, 0 to 60000.'),
  ('min_interval_s', '3600', 'No feed is fetched more often, seconds, 60 to 604800; a feed''s own interval_seconds beats it.'),
  ('max_interval_s', '86400', 'No working feed is to be fetched less often, seconds, 60 to 31536000. Without adaptive intervals it counts only where it is below min_interval_s.'),
  ('connect_timeout_s', '10', 'For name lookup and connection, seconds, 1 to 120.'),
  ('fetch_timeout_s', '60', 'For a whole fetch with its redirects, seconds, 1 to 600.'),
  ('max_redirects', '10', 'Redirects followed in one fetch, 0 to 50.'),
  ('max_body_bytes', '16777216', 'Largest document, as sent and again unpacked, bytes, 1024 to 268435456.'),
  ('max_items', '20000', 'Most entries in one document, 1 to 1000000; more is a failure, too_large.'),
  ('max_delivery_bytes', '8388608', 'Largest delivery from a hub, bytes, 1024 to 268435456.'),
  ('max_pending_deliveries', '1000', 'Deliveries waiting to be read; beyond that hubs are told to come later. 1 to 1000000.'),
  ('callback_wait_ms', '5000', 'How long the callback waits for a locked database, milliseconds, 0 to 60000.'),
  ('lease_s', '864000', 'Lease asked of hubs, seconds, 60 to 31536000.'),
  ('secret_over_http', '0', '1: send the secret to hubs without https too. 0 or 1.'),
  ('allow_addresses', '', 'host:port, addresses or networks (10.0.0.0/8), separated by blanks or commas, that redirects, discovered links and hubs may reach although private.'),
  ('sanitize_html', '1', 'Not obeyed yet: entries are stored as they came, make them safe before you show them. 0 or 1.'),
  ('keep_entries', '0', 'Not obeyed yet: all entries are kept. At most 1000000.'),
  ('fetch_log_days', '14', 'Days that rows of the table fetches are kept, 1 to 3650.');

-- One line a setting, so that the message can name it.
CREATE TRIGGER settings_range BEFORE UPDATE ON settings BEGIN
  SELECT RAISE(ABORT, 'settings: key cannot be changed; set value') WHERE NEW.key IS NOT OLD.key;
  -- length and GLOB see nothing behind a NUL.
  SELECT RAISE(ABORT, 'settings: value must be text without NUL') WHERE instr(NEW.value, char(0)) > 0;
  SELECT CASE WHEN NEW.key IN ('callback_url', 'contact', 'allow_addresses') THEN NULL
              WHEN NEW.value = '' OR NEW.value GLOB '*[^0-9]*' OR length(NEW.value) > 12
              THEN RAISE(ABORT, 'settings: value must be a whole number; its range is in description') END;
  SELECT CASE NEW.key
    WHEN 'callback_url' THEN CASE
      WHEN NEW.value NOT IN ('') AND (NEW.value GLOB '*[^!-~]*' OR length(NEW.value) > 1000 OR NEW.value LIKE '%/'
        OR NEW.value GLOB '*[?#@]*' OR NOT (NEW.value LIKE 'https://_%' OR NEW.value LIKE 'http://_%'))
      THEN RAISE(ABORT, 'callback_url must be empty or an http(s) URL without ?, # or @ and without a slash at the end') END
    WHEN 'contact' THEN CASE WHEN NEW.value GLOB '*[^ -~]*' OR NEW.value GLOB '*[()]*' OR length(NEW.value) > 200
      THEN RAISE(ABORT, 'contact must be at most 200 printable ASCII characters without parentheses') END
    WHEN 'allow_addresses' THEN CASE WHEN NEW.value GLOB '*[^]A-Za-z0-9.:/, _[-]*' OR length(NEW.value) > 10000
      THEN RAISE(ABORT, 'allow_addresses must be a list of host:port, addresses or networks') END
    WHEN 'threads' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 1 AND 256
      THEN RAISE(ABORT, 'threads must be 1 to 256') END
    WHEN 'host_concurrency' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 1 AND 64
      THEN RAISE(ABORT, 'host_concurrency must be 1 to 64') END
    WHEN 'host_delay_ms' THEN CASE WHEN CAST(NEW.value AS INTEGER) > 60000
      THEN RAISE(ABORT, 'host_delay_ms must be 0 to 60000') END
    WHEN 'min_interval_s' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 60 AND 604800
      THEN RAISE(ABORT, 'min_interval_s must be 60 to 604800') END
    WHEN 'max_interval_s' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 60 AND 31536000
      THEN RAISE(ABORT, 'max_interval_s must be 60 to 31536000') END
    WHEN 'connect_timeout_s' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 1 AND 120
      THEN RAISE(ABORT, 'connect_timeout_s must be 1 to 120') END
    WHEN 'fetch_timeout_s' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 1 AND 600
      THEN RAISE(ABORT, 'fetch_timeout_s must be 1 to 600') END
    WHEN 'max_redirects' THEN CASE WHEN CAST(NEW.value AS INTEGER) > 50
      THEN RAISE(ABORT, 'max_redirects must be 0 to 50') END
    WHEN 'max_body_bytes' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 1024 AND 268435456
      THEN RAISE(ABORT, 'max_body_bytes must be 1024 to 268435456') END
    WHEN 'max_items' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 1 AND 1000000
      THEN RAISE(ABORT, 'max_items must be 1 to 1000000') END
    WHEN 'max_delivery_bytes' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 1024 AND 268435456
      THEN RAISE(ABORT, 'max_delivery_bytes must be 1024 to 268435456') END
    WHEN 'max_pending_deliveries' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 1 AND 1000000
      THEN RAISE(ABORT, 'max_pending_deliveries must be 1 to 1000000') END
    WHEN 'callback_wait_ms' THEN CASE WHEN CAST(NEW.value AS INTEGER) > 60000
      THEN RAISE(ABORT, 'callback_wait_ms must be 0 to 60000') END
    WHEN 'lease_s' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 60 AND 31536000
      THEN RAISE(ABORT, 'lease_s must be 60 to 31536000') END
    WHEN 'secret_over_http' THEN CASE WHEN NEW.value NOT IN ('0', '1')
      THEN RAISE(ABORT, 'secret_over_http must be 0 or 1') END
    WHEN 'sanitize_html' THEN CASE WHEN NEW.value NOT IN ('0', '1')
      THEN RAISE(ABORT, 'sanitize_html must be 0 or 1') END
    WHEN 'keep_entries' THEN CASE WHEN CAST(NEW.value AS INTEGER) > 1000000
      THEN RAISE(ABORT, 'keep_entries must be 0 to 1000000') END
    WHEN 'fetch_log_days' THEN CASE WHEN CAST(NEW.value AS INTEGER) NOT BETWEEN 1 AND 3650
      THEN RAISE(ABORT, 'fetch_log_days must be 1 to 3650') END
  END;
END;
CREATE TRIGGER settings_fixed BEFORE DELETE ON settings BEGIN
  SELECT RAISE(ABORT, 'settings: a setting cannot be deleted; its default is in the README');
END;
CREATE TRIGGER settings_known BEFORE INSERT ON settings BEGIN
  SELECT RAISE(ABORT, 'settings: no such setting, or it stands there already; use UPDATE settings SET value = ... WHERE key = ...');
END;

------------------------------------------------------------------------------------------------------------------------
-- What your statements cause

CREATE TRIGGER feeds_inserted AFTER INSERT ON feeds WHEN NEW.state = 'active' BEGIN
  INSERT INTO jobs(kind, feed_id, run_at) VALUES ('fetch', NEW.id, 0);
END;

CREATE TRIGGER feeds_state_set AFTER UPDATE OF state ON feeds WHEN NEW.state IS NOT OLD.state BEGIN
  DELETE FROM jobs WHERE feed_id = NEW.id AND kind = 'fetch' AND NEW.state <> 'active';
  UPDATE feeds SET merged_into = NULL WHERE id = NEW.id AND NEW.state <> 'merged' AND merged_into IS NOT NULL;
  INSERT INTO jobs(kind, feed_id, run_at) SELECT 'fetch', NEW.id, 0 WHERE NEW.state = 'active'
    ON CONFLICT (feed_id) WHERE kind = 'fetch' DO UPDATE SET run_at = 0;
END;

-- The worker raises `rewrites` with each of its own changes of `url`; every other change is yours.
CREATE TRIGGER feeds_url_edited AFTER UPDATE OF url ON feeds WHEN NEW.url IS NOT OLD.url AND NEW.rewrites IS OLD.rewrites
BEGIN
  INSERT INTO feed_urls(feed_id, old_url, new_url, reason, changed_at)
    VALUES (NEW.id, OLD.url, NEW.url, 'edited', CAST(strftime('%s', 'now') AS INTEGER));
  DELETE FROM pending_moves WHERE feed_id = NEW.id;
  DELETE FROM discovered_feeds WHERE feed_id = NEW.id;
  DELETE FROM feed_hubs WHERE feed_id = NEW.id;
  UPDATE subscriptions SET state = 'unsubscribing' WHERE feed_id = NEW.id AND state IN ('pending', 'active');
  UPDATE feeds SET state = 'active', merged_into = NULL, etag = NULL, last_modified = NULL, validators_url = NULL,
      pretty_url = NULL, url_key = NULL, body_hash = NULL, last_success_at = NULL, rewritten_at = NULL,
      failure_kind = NULL, failure_message = NULL, failure_count = 0, failing_since = NULL
    WHERE id = NEW.id;
  INSERT INTO jobs(kind, feed_id, run_at) VALUES ('fetch', NEW.id, 0)
    ON CONFLICT (feed_id) WHERE kind = 'fetch' DO UPDATE SET run_at = 0;
END;

-- Rows that were merged into this one were other addresses of the same feed: they go with it.
CREATE TRIGGER feeds_deleted AFTER DELETE ON feeds BEGIN
  DELETE FROM entries WHERE feed_id = OLD.id;
  DELETE FROM jobs WHERE feed_id = OLD.id AND kind = 'fetch';
  DELETE FROM pending_moves WHERE feed_id = OLD.id;
  DELETE FROM held_targets WHERE feed_id = OLD.id;
  DELETE FROM discovered_feeds WHERE feed_id = OLD.id;
  DELETE FROM feed_hubs WHERE feed_id = OLD.id;
  DELETE FROM feed_urls WHERE feed_id = OLD.id OR feed_id IN (SELECT id FROM feeds WHERE merged_into = OLD.id AND state = 'merged');
  DELETE FROM feeds WHERE merged_into = OLD.id AND state = 'merged';
  DELETE FROM jobs WHERE kind <> 'unsubscribe'
    AND subscription_id IN (SELECT id FROM subscriptions WHERE feed_id = OLD.id);
  DELETE FROM deliveries WHERE subscription_id IN (SELECT id FROM subscriptions WHERE feed_id = OLD.id);
  UPDATE subscriptions SET feed_id = NULL,
      ended_at = CASE WHEN state IN ('denied', 'refused') THEN CAST(strftime('%s', 'now') AS INTEGER) ELSE ended_at END,
      state = CASE WHEN state IN ('pending', 'active') THEN 'unsubscribing'
                   WHEN state IN ('denied', 'refused') THEN 'ended' ELSE state END
    WHERE feed_id = OLD.id;
END;

-- A subscription that is no longer wanted: the hub is told. What it delivered before is still read, unless the feed is gone.
CREATE TRIGGER subscriptions_unwanted AFTER UPDATE OF state ON subscriptions
WHEN NEW.state = 'unsubscribing' AND OLD.state IS NOT 'unsubscribing' BEGIN
  UPDATE subscriptions SET renewing = 0, requests = 0, failures = 0 WHERE id = NEW.id;
  DELETE FROM jobs WHERE subscription_id = NEW.id AND (kind <> 'ingest' OR NEW.feed_id IS NULL);
  DELETE FROM deliveries WHERE subscription_id = NEW.id AND NEW.feed_id IS NULL;
  INSERT INTO jobs(kind, feed_id, subscription_id, run_at) VALUES ('unsubscribe', NEW.feed_id, NEW.id, 0);
END;

-- A feed that is not fetched is not pushed either. It subscribes again after its next good fetch.
CREATE TRIGGER feeds_stopped AFTER UPDATE OF state ON feeds WHEN NEW.state <> 'active' AND OLD.state = 'active' BEGIN
  UPDATE subscriptions SET state = 'unsubscribing' WHERE feed_id = NEW.id AND state IN ('pending', 'active');
END;

CREATE TRIGGER feeds_hub_set AFTER UPDATE OF hub_url ON feeds WHEN NEW.hub_url IS NOT OLD.hub_url BEGIN
  UPDATE jobs SET run_at = 0 WHERE feed_id = NEW.id AND kind = 'fetch';
END;

CREATE TRIGGER entries_deleted AFTER DELETE ON entries BEGIN
  DELETE FROM enclosures WHERE entry_id = OLD.id;
END;

------------------------------------------------------------------------------------------------------------------------
-- Views for people; times in UTC

CREATE VIEW feed_status AS
SELECT f.id, coalesce(f.title, f.pretty_url, f.url) AS feed, f.folder, f.state,
       CASE WHEN f.state = 'merged' THEN 'the same feed as ' || f.merged_into
            WHEN f.failure_kind IS NOT NULL THEN f.failure_kind || ' x' || f.failure_count || ': ' || f.failure_message
            WHEN p.feed_id IS NOT NULL THEN 'redirected to ' || p.target_url || ', waiting: ' || p.why
            WHEN f.last_fetched_at IS NULL AND f.state = 'active' THEN 'not fetched yet'
            ELSE 'ok' END AS condition,
       datetime(f.last_fetched_at, 'unixepoch') AS fetched,
       datetime(f.last_success_at, 'unixepoch') AS succeeded,
       CASE WHEN j.claimed_by IS NOT NULL THEN 'now'
            WHEN j.run_at = 0 THEN 'at once'
            ELSE datetime(j.run_at, 'unixepoch') END AS next_fetch,
       (SELECT count(*) FROM entries e WHERE e.feed_id = f.id) AS entries,
       f.url
FROM feeds f
LEFT JOIN jobs j ON j.feed_id = f.id AND j.kind = 'fetch'
LEFT JOIN pending_moves p ON p.feed_id = f.id;

CREATE VIEW queue_status AS
SELECT j.id, j.kind, f.url,
       CASE WHEN j.claimed_by IS NOT NULL THEN 'running'
            WHEN j.run_at <= CAST(strftime('%s', 'now') AS INTEGER) THEN 'due'
            ELSE 'waiting' END AS condition,
       CASE WHEN j.run_at = 0 THEN 'at once' ELSE datetime(j.run_at, 'unixepoch') END AS due,
       j.attempts, j.claimed_by, datetime(j.claim_expires_at, 'unixepoch') AS claimed_until, j.last_error
FROM jobs j
LEFT JOIN feeds f ON f.id = j.feed_id;

CREATE VIEW subscription_status AS
SELECT s.id, f.url AS feed, s.hub_url AS hub, s.state,
       CASE WHEN s.renewing THEN 'renewing' ELSE '' END AS renewal,
       (SELECT CASE WHEN min(j.run_at) = 0 THEN 'at once' ELSE datetime(min(j.run_at), 'unixepoch') END
        FROM jobs j WHERE j.subscription_id = s.id AND j.kind <> 'ingest') AS next_step,
       datetime(s.lease_expires_at, 'unixepoch') AS lease_ends,
       datetime(s.verified_at, 'unixepoch') AS verified,
       datetime(s.last_delivery_at, 'unixepoch') AS last_push,
       s.good_pushes, s.bad_pushes, s.misses,
       (SELECT count(*) FROM deliveries d WHERE d.subscription_id = s.id) AS waiting,
       s.topic_url AS topic, s.last_error
FROM subscriptions s
LEFT JOIN feeds f ON f.id = s.feed_id;

CREATE VIEW hub_status AS
SELECT s.hub_url AS hub,
       sum(s.state = 'active') AS active, sum(s.state = 'pending') AS pending,
       sum(s.state IN ('denied', 'refused')) AS turned_down,
       sum(s.state = 'active' AND s.misses >= 3) AS unreliable,
       sum(s.good_pushes) AS good_pushes, sum(s.bad_pushes) AS bad_pushes, sum(s.misses) AS misses,
       datetime(max(s.last_delivery_at), 'unixepoch') AS last_push,
       CASE WHEN h.next_request_at > CAST(strftime('%s', 'now') AS INTEGER)
            THEN datetime(h.next_request_at, 'unixepoch') END AS left_alone_until,
       h.last_error
FROM subscriptions s
LEFT JOIN hubs h ON h.hub_url = s.hub_url
GROUP BY s.hub_url;

COMMIT;
