//! The loop: claim (one transaction) → perform (pool threads) → apply (the same transaction that claims the next jobs).
//!
//! The thread that runs it is the only one that holds the worker's connection; it never waits for the network, and no
//! transaction is open while anything is waited for. Pool threads get a `Task` and give back an `Outcome`, both plain data.
//! Called by the command `run`.

pub mod alive;
pub mod apply;
mod claim;
pub mod hosts;
pub mod perform;
pub mod push;
mod work;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::fetch::guard::AllowList;
use crate::fetch::{Limits, Network, NetworkOptions, TestNames};
use crate::store::settings::Settings;
use crate::store::transaction::{checkpoint, immediate, savepoint};
use crate::store::{feeds, jobs, log as fetch_log, open, requests};
use crate::task::{Done, FetchLimits, Outcome, Task, Work};
use alive::LifeSign;
use hosts::Hosts;
use perform::{ParseGate, Tools};
use rusqlite::Connection;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// How often the worker looks whether somebody else wrote to the database.
const LOOK: Duration = Duration::from_millis(250);
/// After a stop is asked for: how long to wait for what is in flight. Waiting for a lock comes on top, and all of it is to
/// take less than 10 s.
const PATIENCE: Duration = Duration::from_secs(7);
/// How long one try to get the write lock may take; longer waits are made of several, so that a stop is noticed.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// How often old log rows and ended holds are looked for, when there is something else to write.
const CHORES: Duration = Duration::from_secs(30);
/// How long the database may stay locked without a word in the log.
const SILENCE: Duration = Duration::from_secs(2);
/// No claim is made for so many seconds, whatever `fetch_timeout_s` was when it was made and however long another worker had
/// waited for the lock since it looked at the clock: one that ends later is from before the clock was set back.
const LONGEST_CLAIM: i64 = 3600;
/// How often claims of dead workers and claims that ran out are looked for; it costs two small reads.
const CLAIMS_LOOK: Duration = Duration::from_secs(5);
/// How often rows without a feed are looked for.
const GREAT_CHORES: Duration = Duration::from_secs(6 * 3600);
/// Jobs that wait for their hosts and are looked at in one round.
const MOST_WAITING: usize = 256;
/// Log rows removed at a time.
const PURGE: usize = 2000;

/// How a worker is set up.
#[derive(Debug, Default)]
pub struct Options {
    pub database: PathBuf,
    /// Overrides the setting.
    pub threads: Option<usize>,
    pub clock: Clock,
    /// Tests: all host names there are.
    pub names: Option<TestNames>,
    /// Root certificates (PEM) in the place of the bundled ones.
    pub roots_pem: Option<Vec<u8>>,
}

/// A worker with its connection and its pool.
pub struct Worker {
    db: Connection,
    database: PathBuf,
    life: LifeSign,
    clock: Clock,
    names: Option<TestNames>,
    roots_pem: Option<Vec<u8>>,
    settings: Settings,
    limits: Arc<FetchLimits>,
    tools: Arc<Tools>,
    pool: rayon::ThreadPool,
    threads: usize,
    send: SyncSender<Outcome>,
    receive: Receiver<Outcome>,
    /// Received, and not committed yet.
    outcomes: Vec<Outcome>,
    in_flight: usize,
    /// Requests to hubs among them.
    asking: usize,
    hosts: Hosts,
    holds: HashMap<String, i64>,
    data_version: i64,
    /// When the earliest job is due that may start once its time has come; `None`: none is known.
    next_due: Option<i64>,
    /// When the earliest job that waits for its host may start.
    next_slot: Option<Instant>,
    chores: Chores,
    claims_looked: Instant,
    great_chores_done: Instant,
    trouble: Option<Trouble>,
}

/// The database cannot be written for the time being.
struct Trouble {
    since: Instant,
    said: Option<Instant>,
}

/// Old log rows and ended holds: removed along with something else that is written, so that an idle worker writes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chores {
    Done(Instant),
    Due,
}

/// How far `run_once` is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub done: usize,
    pub total: usize,
}

/// What one round may take on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claims {
    /// Nothing more: stopping.
    None,
    /// All that is due.
    All,
    /// What was due at this time.
    DueAt(i64),
}

impl Worker {
    /// Opens the database (an older one is brought up to date), frees the claims of dead workers, starts the pool.
    ///
    /// # Errors
    /// The database cannot be used, or threads cannot be started.
    pub fn new(options: Options) -> Result<Worker> {
        let db = open::open(&options.database)?;
        db.busy_timeout(LOCK_WAIT)?;
        let settings = Settings::load(&db)?;
        let threads = options.threads.unwrap_or(settings.threads);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|number| format!("fetch-{number}"))
            // rayon aborts the process where a job panics and no handler is set.
            .panic_handler(|_| ::log::error!("a pool thread panicked outside of a job"))
            .build()
            .map_err(|error| {
                Error::Failed(format!("cannot start {threads} threads ({error}); try fewer, --threads 8"))
            })?;
        let (send, receive) = sync_channel(threads);
        let tools = tools(&settings, options.names.clone(), options.roots_pem.clone())?;
        let now = Instant::now();
        let mut worker = Worker {
            life: LifeSign::new(&options.database)?,
            database: options.database,
            clock: options.clock,
            names: options.names,
            roots_pem: options.roots_pem,
            limits: Arc::new(limits(&settings)),
            tools: Arc::new(tools),
            hosts: Hosts::new(settings.host_concurrency, settings.host_delay),
            settings,
            pool,
            threads,
            send,
            receive,
            outcomes: Vec::new(),
            in_flight: 0,
            asking: 0,
            holds: HashMap::new(),
            data_version: 0,
            next_due: Some(0),
            next_slot: None,
            chores: Chores::Done(now),
            claims_looked: now,
            great_chores_done: now,
            trouble: None,
            db,
        };
        match worker.free_lost_claims() {
            // Somebody writes for long: the loop looks again.
            Err(Error::Sqlite(error)) if passing(&error) => {}
            other => other?,
        }
        Ok(worker)
    }

    /// Works until `stop` is set, then finishes or gives back what is in flight.
    ///
    /// # Errors
    /// The database is damaged or was replaced; what only takes time (a lock, a full disk) is waited for.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.receive(self.nap());
            self.round(Claims::All)?;
        }
        self.stop()
    }

    /// Works off all that is due now, waiting for the delays of hosts but not for their holds; `progress` is told after every
    /// round.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub fn run_once(&mut self, stop: &AtomicBool, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        let began = self.clock.now();
        let total = usize::try_from(jobs::count_due(&self.db, began)?).unwrap_or(0);
        let mut done = 0;
        self.next_due = Some(0);
        while !stop.load(Ordering::Relaxed) {
            let received = self.outcomes.len();
            self.receive(self.nap());
            done += self.outcomes.len() - received;
            self.round(Claims::DueAt(began))?;
            // What was merged or refused on the way needed no fetch, what was inserted meanwhile came on top.
            progress(Progress { done, total: total.max(done + self.in_flight) });
            let busy = self.in_flight > 0 || !self.outcomes.is_empty() || self.trouble.is_some();
            if !busy && !self.hosts.expects(Instant::now()) && jobs::next_due(&self.db)?.is_none_or(|due| due > began) {
                break;
            }
        }
        self.stop()
    }

    /// How long the loop may sleep when no outcome comes.
    fn nap(&self) -> Duration {
        if self.trouble.is_some() {
            return LOOK;
        }
        if self.in_flight < self.threads {
            if self.next_due.is_some_and(|due| due <= self.clock.now()) {
                return Duration::ZERO;
            }
            if let Some(slot) = self.next_slot {
                return slot.saturating_duration_since(Instant::now()).min(LOOK);
            }
        }
        LOOK
    }

    /// Takes what is there, waiting at most `nap` for the first.
    fn receive(&mut self, nap: Duration) {
        let first = match self.receive.recv_timeout(nap) {
            Ok(outcome) => outcome,
            // The other end is held by this very struct.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        };
        let now = Instant::now();
        for outcome in std::iter::once(first).chain(self.receive.try_iter()) {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.hosts.ended(&outcome.host, now);
            self.asking -= usize::from(outcome.asks);
            self.outcomes.push(outcome);
        }
    }

    /// One transaction, if there is any reason for one: apply what came, claim what is due. Then the new tasks go to the pool.
    fn round(&mut self, claims: Claims) -> Result<()> {
        match self.try_round(claims) {
            Ok(()) => {
                if let Some(trouble) = self.trouble.take().filter(|trouble| trouble.said.is_some()) {
                    ::log::info!("the database can be written again after {} s", trouble.since.elapsed().as_secs());
                }
                Ok(())
            }
            Err(Error::Sqlite(error)) if passing(&error) => {
                let now = Instant::now();
                let trouble = self.trouble.get_or_insert(Trouble { since: now, said: None });
                // Two busy workers keep each other waiting for a moment; that is nothing to speak of.
                let long = trouble.since.elapsed() >= SILENCE;
                if long && trouble.said.is_none_or(|said| said.elapsed() >= Duration::from_secs(60)) {
                    trouble.said = Some(now);
                    let seconds = trouble.since.elapsed().as_secs();
                    let (waiting, error) = (self.outcomes.len(), Error::Sqlite(error));
                    ::log::warn!("nothing can be written for {seconds} s, {waiting} results wait: {error}");
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn try_round(&mut self, claims: Claims) -> Result<()> {
        let version = jobs::data_version(&self.db)?;
        if version != self.data_version {
            self.reload()?;
            self.data_version = version;
            self.next_due = Some(0);
        }
        if matches!(self.chores, Chores::Done(at) if at.elapsed() >= CHORES) {
            self.chores = Chores::Due;
        }
        if self.claims_looked.elapsed() >= CLAIMS_LOOK {
            self.claims_looked = Instant::now();
            self.free_lost_claims()?;
        }
        if self.great_chores_done.elapsed() >= GREAT_CHORES {
            self.great_chores_done = Instant::now();
            immediate(&self.db, |db| {
                jobs::adopt_feeds(db)?;
                feeds::sweep_orphans(db)
            })?;
        }
        let now = self.clock.now();
        let at = Instant::now();
        let room = claims != Claims::None && self.in_flight < self.threads;
        let slot = self.next_slot.is_some_and(|slot| slot <= at);
        let due = room && (slot || self.next_due.is_some_and(|due| due <= now));
        // Asked without a lock first: whoever only wakes up writes nothing.
        let due = due && {
            self.next_due = jobs::next_due(&self.db)?;
            slot || self.next_due.is_some_and(|due| due <= now)
        };
        if due {
            self.next_slot = None;
        }
        if !due && self.outcomes.is_empty() {
            return Ok(());
        }
        let idle = self.threads - self.in_flight.min(self.threads);
        let tasks = self.transact(now, if due { claims } else { Claims::None }, idle)?;
        self.outcomes.clear();
        self.in_flight += tasks.len();
        for task in tasks {
            let (tools, send) = (Arc::clone(&self.tools), self.send.clone());
            self.pool.spawn(move || {
                let outcome = work::work(task, &tools);
                // The loop is gone only when the process ends.
                let _ = send.send(outcome);
            });
        }
        Ok(())
    }

    /// The transaction of a round. Nothing outside of the database is changed by it but the politeness of hosts, which is put
    /// back when it fails.
    fn transact(&mut self, now: i64, claims: Claims, idle: usize) -> Result<Vec<Task>> {
        let mut tasks: Vec<Task> = Vec::new();
        let most_asking = (self.threads / 4).max(1);
        let Worker { db, life, settings, outcomes, hosts, holds, limits, next_due, next_slot, asking, .. } = self;
        let longest = perform::longest(settings.fetch_timeout);
        let chores = self.chores == Chores::Due;
        let done = immediate(db, |db| {
            let context = apply::Context { db, worker: life.name(), settings, now };
            for outcome in outcomes.iter() {
                let applied = savepoint(db, || match &outcome.result {
                    Done::Fetch(fetched) => context.fetched(&outcome.claim, fetched),
                    Done::Ask(asked) => context.asked(&outcome.claim, asked),
                    Done::Ingest(ingested) => context.ingested(&outcome.claim, ingested),
                    Done::Panicked => {
                        jobs::finish(db, &outcome.claim, life.name(), now + 3600, Some("panic")).map(|_| ())
                    }
                });
                match applied {
                    Err(Error::Sqlite(error)) if passing(&error) => return Err(Error::Sqlite(error)),
                    // One bad row never takes its neighbours down; its job runs again.
                    Err(error) => {
                        ::log::error!("job {}: its result could not be stored: {error}", outcome.claim.job_id);
                        let again = now + settings.min_interval_s;
                        jobs::finish(db, &outcome.claim, life.name(), again, Some(&error.to_string()))?;
                    }
                    Ok(()) => {}
                }
            }
            jobs::sweep_expired(db, now, LONGEST_CLAIM)?;
            if chores {
                fetch_log::purge(db, now - settings.fetch_log_days * 86400, PURGE)?;
                fetch_log::purge_holds(db, now)?;
                requests::tidy(db, now)?;
            }
            if claims == Claims::None {
                *next_due = jobs::next_due(db)?;
                return Ok(());
            }
            *holds = fetch_log::held_hosts(db, now)?;
            let mut claim =
                claim::Claim { db, life, limits, hosts, holds, now, claims, longest, next_slot, asking, most_asking };
            let more = claim.all(idle, &mut tasks)?;
            // What is still due and was looked at waits for its host: `next_slot` says when.
            *next_due = if more { Some(0) } else { jobs::next_due_after(db, now)? };
            Ok(())
        });
        if let Err(error) = done {
            for task in &tasks {
                self.hosts.ended(&task.host, Instant::now());
                self.asking -= usize::from(matches!(task.work, Work::Ask(_)));
            }
            self.next_due = Some(0);
            return Err(error);
        }
        if chores {
            self.chores = Chores::Done(Instant::now());
            self.hosts.forget_stale(Instant::now());
        }
        Ok(tasks)
    }

    /// Somebody wrote: settings may be others now.
    fn reload(&mut self) -> Result<()> {
        let settings = match Settings::load(&self.db) {
            Ok(settings) => settings,
            Err(Error::Database(text)) => {
                ::log::error!("{text}; the settings stay as they were");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if settings == self.settings {
            return Ok(());
        }
        self.hosts.concurrency = settings.host_concurrency;
        self.hosts.delay = settings.host_delay;
        if settings.contact != self.settings.contact || settings.allow_addresses != self.settings.allow_addresses {
            match tools(&settings, self.names.clone(), self.roots_pem.clone()) {
                Ok(tools) => self.tools = Arc::new(tools),
                Err(error) => ::log::error!("a setting cannot be used, the old one stays: {error}"),
            }
        }
        self.limits = Arc::new(limits(&settings));
        self.settings = settings;
        ::log::info!("settings read again");
        Ok(())
    }

    /// Frees the claims of dead workers, and those that ran out.
    fn free_lost_claims(&mut self) -> Result<()> {
        for name in jobs::claimants(&self.db)? {
            if name != self.life.name() && !alive::lives(&self.database, &name) {
                let freed = immediate(&self.db, |db| jobs::release_all(db, &name))?;
                if freed > 0 {
                    ::log::info!("{freed} jobs of a worker that died are free again");
                    self.next_due = Some(0);
                }
            }
        }
        let now = self.clock.now();
        if jobs::any_expired(&self.db, now, LONGEST_CLAIM)? {
            immediate(&self.db, |db| jobs::sweep_expired(db, now, LONGEST_CLAIM))?;
            self.next_due = Some(0);
        }
        Ok(())
    }

    /// Takes no new work, waits for what is in flight as long as patience lasts, gives back the rest, tidies the file.
    fn stop(&mut self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while self.in_flight > 0 || !self.outcomes.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.receive(left.min(LOOK));
            self.round(Claims::None)?;
        }
        if self.in_flight > 0 {
            ::log::info!("{} fetches did not end in time and are given back", self.in_flight);
        }
        let (now, days) = (self.clock.now(), self.settings.fetch_log_days);
        let given_back = immediate(&self.db, |db| {
            // Whoever runs by a timer never lives long enough for the chores.
            fetch_log::purge(db, now - days * 86400, PURGE)?;
            jobs::release_all(db, self.life.name())
        });
        match given_back {
            // Our life sign goes with us: the next worker frees them.
            Err(Error::Sqlite(error)) if passing(&error) => {
                ::log::warn!("the next worker has to free what this one held: {}", Error::Sqlite(error));
                return Ok(());
            }
            other => other?,
        };
        checkpoint(&self.db)
    }
}

/// Whether waiting may help: a lock, a full disk, a lack of memory or descriptors.
fn passing(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::*;
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseBusy | DatabaseLocked | DiskFull | SystemIoFailure | OutOfMemory | CannotOpen | ReadOnly)
    )
}

fn limits(settings: &Settings) -> FetchLimits {
    FetchLimits {
        http: Limits {
            connect_timeout: settings.connect_timeout,
            chain_timeout: settings.fetch_timeout,
            max_redirects: settings.max_redirects,
            max_body_bytes: settings.max_body_bytes,
        },
        max_items: settings.max_items,
    }
}

/// What pool threads share: the way out, and a gate as wide as there are processors, four at most.
fn tools(settings: &Settings, names: Option<TestNames>, roots_pem: Option<Vec<u8>>) -> Result<Tools> {
    let allow = AllowList::parse(&settings.allow_addresses)
        .map_err(|error| Error::Failed(format!("the setting allow_addresses: {error}")))?;
    let options = NetworkOptions { user_agent: settings.user_agent(), allow, names, extra_roots_pem: roots_pem };
    let network = Network::new(options).map_err(Error::Failed)?;
    let width = std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 4);
    Ok(Tools { network, gate: ParseGate::new(width) })
}

/// A panic is one line in the log, not a back trace on the terminal.
pub fn log_panics() {
    static ONCE: LazyLock<()> = LazyLock::new(|| {
        std::panic::set_hook(Box::new(|info| ::log::debug!("{info}")));
    });
    LazyLock::force(&ONCE);
}
