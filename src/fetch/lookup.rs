//! Names → addresses that may be dialled.
//!
//! getaddrinfo cannot be interrupted, so look-ups run on threads of their own: few, started when needed, gone when
//! idle, and never more than [`MAX_THREADS`], however many look-ups hang. Literal addresses and the tests' names need
//! none of them.

use super::Network;
use super::guard::{self, Class};
use super::hop::is_local;
use crate::rules::failure::{Failure, FailureKind};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use url::{Host, Url};

/// Names for tests: `name` or `name:port` (tried first) → the loopback address that is really dialled, and the address
/// that the guard is told. With such a map, other names do not resolve.
pub type TestNames = HashMap<String, (SocketAddr, IpAddr)>;

/// Look-ups at one time: as many as fetch threads by default.
const MAX_THREADS: usize = 32;
/// A look-up thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);
/// getaddrinfo with its modules needs far less; the default of 2 MiB counts where memory is limited by address space.
const STACK: usize = 512 * 1024;
/// Addresses tried for one name.
const MAX_ADDRESSES: usize = 4;

/// An address that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub address: SocketAddr,
    pub class: Class,
}

/// The checked addresses of `url`'s host, at least one, in the order in which they are to be tried.
pub(super) fn targets(
    network: &Network,
    url: &Url,
    may_be_private: bool,
    until: Instant,
) -> Result<Vec<Target>, Failure> {
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
        return Err(Failure::new(FailureKind::BadUrl, format!("{url} names no host")));
    };
    let name = url.host_str().unwrap_or_default();
    let literal = |ip: IpAddr| vec![(SocketAddr::new(ip, port), ip)];
    let found = match (&host, &network.names) {
        (Host::Ipv4(v4), _) => literal((*v4).into()),
        (Host::Ipv6(v6), _) => literal((*v6).into()),
        (Host::Domain(_), Some(names)) => {
            let entry = names.get(&format!("{name}:{port}")).or_else(|| names.get(name));
            vec![*entry.ok_or_else(|| unknown(name, "the name is not in the test's map"))?]
        }
        (Host::Domain(_), None) => {
            let ips = network.lookups.run(name, until)?;
            ips.into_iter().map(|ip| (SocketAddr::new(ip, port), ip)).collect()
        }
    };
    let checked = found.iter().map(|(address, ip)| {
        let class = guard::class(*ip);
        let ok = guard::allowed(class, may_be_private, network.allow.lists(name, port, *ip));
        (Target { address: *address, class }, ok)
    });
    let mut targets: Vec<Target> = checked.filter(|(_, ok)| *ok).map(|(target, _)| target).collect();
    // A public name with a private address among its own is a mistake or a trick; the public ones serve.
    if targets.iter().any(|target| target.class == Class::Public) {
        targets.retain(|target| target.class == Class::Public);
    }
    if targets.is_empty() {
        return Err(blocked(name, port, &found.iter().map(|(_, ip)| *ip).collect::<Vec<_>>()));
    }
    Ok(in_turn(targets))
}

fn blocked(name: &str, port: u16, ips: &[IpAddr]) -> Failure {
    let Some(first) = ips.first() else { return unknown(name, "the name has no address") };
    let message = if ips.iter().any(|ip| guard::class(*ip) == Class::Metadata) {
        format!("{name} is {first}, a cloud's metadata service: never fetched")
    } else {
        format!(
            "{name} is {first}, a private address: if that is meant, add {name}:{port} to the setting allow_addresses"
        )
    };
    Failure::new(FailureKind::BlockedAddress, message)
}

fn unknown(name: &str, why: &str) -> Failure {
    Failure::new(FailureKind::Dns, format!("the host name {name} does not resolve: {why}"))
}

/// The families by turns, beginning with the system's first choice: where one of them is broken, the second address
/// works.
fn in_turn(targets: Vec<Target>) -> Vec<Target> {
    let first_is_v4 = targets.first().is_some_and(|target| target.address.is_ipv4());
    let (same, other): (Vec<_>, Vec<_>) = targets.into_iter().partition(|t| t.address.is_ipv4() == first_is_v4);
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut ordered = Vec::with_capacity(MAX_ADDRESSES);
    loop {
        let pair = [same.next(), other.next()];
        if pair == [None, None] {
            ordered.truncate(MAX_ADDRESSES);
            return ordered;
        }
        ordered.extend(pair.into_iter().flatten());
    }
}

/// The look-up threads. Dropping it lets them end.
#[derive(Debug, Default)]
pub(super) struct Lookups(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
    /// Threads that are in a look-up; the others are free, or about to be.
    busy: usize,
    closed: bool,
}

#[derive(Debug)]
struct Job {
    name: String,
    until: Instant,
    started: Arc<AtomicBool>,
    answer: SyncSender<io::Result<Vec<IpAddr>>>,
}

impl Lookups {
    /// The addresses of a name as the system gives them, without duplicates. That there is no thread to ask is a local
    /// fault.
    fn run(&self, name: &str, until: Instant) -> Result<Vec<IpAddr>, Failure> {
        let (answer, answered) = sync_channel(1);
        let started = Arc::new(AtomicBool::new(false));
        let job = Job { name: name.to_string(), until, started: Arc::clone(&started), answer };
        self.enqueue(job).map_err(|error| {
            Failure::local(FailureKind::Dns, format!("no thread could be started to look up {name}: {error}"))
        })?;
        match answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Ok(ips)) => Ok(ips),
            Ok(Err(error)) if is_local(&error) || descriptors_are_out() => {
                Err(Failure::local(FailureKind::Dns, format!("{name} could not be looked up: {error}")))
            }
            Ok(Err(error)) => Err(unknown(name, plain(&error.to_string()))),
            Err(RecvTimeoutError::Timeout) if started.load(Ordering::Relaxed) => {
                Err(unknown(name, "the name server did not answer in time"))
            }
            // Not even begun: others' look-ups hang. That says nothing about this name.
            Err(_) => {
                Err(Failure::local(FailureKind::Dns, format!("{name} was not looked up: too many look-ups hang")))
            }
        }
    }

    fn enqueue(&self, job: Job) -> io::Result<()> {
        let mut state = self.0.lock();
        state.waiting.push_back(job);
        if state.threads - state.busy < state.waiting.len() && state.threads < MAX_THREADS {
            let shared = Arc::clone(&self.0);
            let builder = std::thread::Builder::new().name("lookup".to_string()).stack_size(STACK);
            match builder.spawn(move || shared.serve()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    state.waiting.pop_back();
                    return Err(error);
                }
                // The threads that there are will come to it.
                Err(_) => {}
            }
        }
        drop(state);
        self.0.work.notify_one();
        Ok(())
    }
}

impl Drop for Lookups {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; if it did, the counters would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                state.busy += 1;
                drop(state);
                let found = job.perform();
                // Free before the answer is out: whoever gets it may ask for the next at once.
                self.lock().busy -= 1;
                if let Some(found) = found {
                    // Whoever asked may have given up.
                    let _ = job.answer.send(found);
                }
                state = self.lock();
                continue;
            }
            if state.closed {
                break;
            }
            let (back, timeout) = self.work.wait_timeout(state, IDLE).unwrap_or_else(|poisoned| poisoned.into_inner());
            state = back;
            if timeout.timed_out() && state.waiting.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl Job {
    /// `None`: too late to matter.
    fn perform(&self) -> Option<io::Result<Vec<IpAddr>>> {
        if Instant::now() >= self.until {
            return None;
        }
        self.started.store(true, Ordering::Relaxed);
        Some((self.name.as_str(), 0).to_socket_addrs().map(|addresses| {
            let mut ips: Vec<IpAddr> = Vec::new();
            for address in addresses {
                if !ips.contains(&address.ip()) {
                    ips.push(address.ip());
                }
            }
            ips
        }))
    }
}

/// getaddrinfo says "temporary failure" when it could open no socket: only a try shows it.
fn descriptors_are_out() -> bool {
    std::fs::File::open("/dev/null").is_err_and(|error| is_local(&error))
}

/// The standard library's words around the system's own.
fn plain(message: &str) -> &str {
    message.strip_prefix("failed to lookup address information: ").unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(address: &str) -> Target {
        Target { address: address.parse().unwrap(), class: Class::Public }
    }

    #[test]
    fn families_by_turns() {
        let six = ["[2606::1]:80", "[2606::2]:80", "[2606::3]:80", "[2606::4]:80"].map(target);
        let four = target("8.8.8.8:80");
        let all: Vec<Target> = six.into_iter().chain([four]).collect();
        assert_eq!(in_turn(all), [six[0], four, six[1], six[2]]);
        assert_eq!(in_turn(vec![four]), [four]);
    }

    #[test]
    fn threads_are_reused_and_localhost_is_known() {
        let lookups = Lookups::default();
        let until = Instant::now() + Duration::from_secs(5);
        for _ in 0..5 {
            let ips = lookups.run("localhost", until).unwrap();
            assert!(ips.iter().all(IpAddr::is_loopback));
        }
        assert_eq!(lookups.0.lock().threads, 1);
        let failure = lookups.run("localhost", Instant::now()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Dns);
    }
}
