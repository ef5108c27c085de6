//! The messages to the service manager: systemd's `sd_notify` protocol, one datagram each.
//!
//! Without `NOTIFY_SOCKET` in the environment nothing is sent. A thread of its own asks for more
//! time while the store is recovered, and sends `WATCHDOG=1` afterwards, but only while the broker
//! is alive. So a broker that hangs is started again.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tracing::warn;

/// The extension of the start by one request.
const EXTENDED: Duration = Duration::from_secs(30);

/// The time between two requests for more time.
const EXTENDS_EVERY: Duration = Duration::from_secs(10);

/// The service manager that has started this process; `None` if none did.
static MANAGER: OnceLock<Option<Manager>> = OnceLock::new();

/// The phase of the broker.
enum ServicePhase {
    /// The store is recovered, and listeners are opened.
    Starts,
    /// Clients can connect. Returns true while every thread does its work.
    Runs(Box<dyn Fn() -> bool + Send>),
    /// The broker stops.
    Stops,
}

struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// The time between two signs of life; `None` if none are wanted.
    watchdog: Option<Duration>,
    phase: Mutex<ServicePhase>,
    changed: Condvar,
}

/// Begins to report to the service manager. Call it once, before the store is opened.
pub fn starts() {
    let manager = MANAGER.get_or_init(|| {
        let path = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty())?;
        let watchdog = sign_of_life(std::env::var_os("WATCHDOG_USEC"), std::env::var_os("WATCHDOG_PID"));
        match Manager::new(&path, watchdog) {
            Ok(manager) => Some(manager),
            Err(error) => {
                warn!(event = "service.socket_failed", %error, "the service manager cannot be told that the broker is ready; check NOTIFY_SOCKET");
                None
            }
        }
    });
    if let Some(manager) = manager {
        let thread = std::thread::Builder::new().name("homing-service".into());
        if let Err(error) = thread.spawn(|| manager.run()) {
            warn!(event = "service.thread_failed", %error, "no signs of life are sent to the service manager");
        }
    }
}

/// Reports that clients can connect. `is_alive` returns true while every thread does its work.
pub fn is_ready(is_alive: impl Fn() -> bool + Send + 'static) {
    if let Some(manager) = manager() {
        manager.tell("READY=1");
        manager.enter(ServicePhase::Runs(Box::new(is_alive)));
    }
}

/// Reports that the configuration is read again, unless the broker stops. [`reloaded`] has to
/// follow.
pub fn reloads() {
    tell_unless_it_stops("RELOADING=1");
}

/// Reports the end of a reload, unless the broker stops meanwhile.
pub fn reloaded() {
    tell_unless_it_stops("READY=1");
}

fn tell_unless_it_stops(state: &str) {
    if let Some(manager) = manager()
        && !matches!(*manager.phase(), ServicePhase::Stops)
    {
        manager.tell(state);
    }
}

/// Reports that the broker stops.
pub fn stops() {
    if let Some(manager) = manager() {
        manager.tell("STOPPING=1");
        manager.enter(ServicePhase::Stops);
    }
}

fn manager() -> Option<&'static Manager> {
    MANAGER.get()?.as_ref()
}

/// Returns the time between two signs of life: a third of the manager's timeout. With a
/// `WATCHDOG_PID` of another process, this process sends no signs of life.
fn sign_of_life(usec: Option<OsString>, pid: Option<OsString>) -> Option<Duration> {
    let number = |text: OsString| text.to_str().and_then(|text| text.parse::<u64>().ok());
    let is_mine = pid.is_none_or(|pid| number(pid) == Some(std::process::id().into()));
    let usec = usec.and_then(number).filter(|usec| is_mine && *usec > 0)?;
    Some(Duration::from_micros(usec) / 3)
}

impl Manager {
    fn new(path: &OsStr, watchdog: Option<Duration>) -> io::Result<Manager> {
        let address = match path.as_bytes() {
            // An abstract name.
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(path)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read must not hold up the broker.
        socket.set_nonblocking(true)?;
        let (phase, changed) = (Mutex::new(ServicePhase::Starts), Condvar::new());
        Ok(Manager { socket, address, watchdog, phase, changed })
    }

    /// Sends a message. A message that is lost is followed by the next sign of life.
    fn tell(&self, message: &str) {
        drop(self.socket.send_to_addr(message.as_bytes(), &self.address));
    }

    fn phase(&self) -> MutexGuard<'_, ServicePhase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: ServicePhase) {
        *self.phase() = phase;
        self.changed.notify_all();
    }

    /// Sends due notifications until the broker stops.
    fn run(&self) {
        let mut phase = self.phase();
        loop {
            let pause = match (&*phase, self.watchdog) {
                (ServicePhase::Starts, _) => {
                    self.tell(&format!("EXTEND_TIMEOUT_USEC={}", EXTENDED.as_micros()));
                    EXTENDS_EVERY
                }
                (ServicePhase::Runs(is_alive), Some(pause)) => {
                    if is_alive() {
                        self.tell("WATCHDOG=1");
                    }
                    pause
                }
                (ServicePhase::Runs(_), None) | (ServicePhase::Stops, _) => return,
            };
            phase = self.changed.wait_timeout(phase, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_comes_three_times_as_often_as_it_is_wanted() {
        let sign = |usec: &str, pid: Option<&str>| sign_of_life(Some(usec.into()), pid.map(OsString::from));
        let own = std::process::id().to_string();
        assert_eq!(sign("30000000", None), Some(Duration::from_secs(10)));
        assert_eq!(sign("30000000", Some(&own)), Some(Duration::from_secs(10)));
        assert_eq!(sign("30000000", Some("1")), None);
        assert_eq!((sign("0", None), sign("soon", None), sign_of_life(None, None)), (None, None, None));
    }

    #[test]
    fn a_broker_that_hangs_sends_no_sign_of_life() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let reader = UnixDatagram::bind(&path).unwrap();
        reader.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let next = || {
            let mut buffer = [0; 256];
            let read = reader.recv(&mut buffer).ok()?;
            String::from_utf8(buffer[..read].to_vec()).ok()
        };
        let watchdog = Some(Duration::from_millis(5));
        let manager: &'static Manager =
            Box::leak(Box::new(Manager::new(path.as_os_str(), watchdog).unwrap()));
        let thread = std::thread::spawn(|| manager.run());
        assert_eq!(next().as_deref(), Some("EXTEND_TIMEOUT_USEC=30000000"));
        let alive = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let asked = std::sync::Arc::clone(&alive);
        manager.enter(ServicePhase::Runs(Box::new(move || asked.load(std::sync::atomic::Ordering::SeqCst))));
        assert_eq!(next().as_deref(), Some("WATCHDOG=1"));
        alive.store(false, std::sync::atomic::Ordering::SeqCst);
        // Notifications that were already on their way.
        while next().is_some() {}
        manager.enter(ServicePhase::Stops);
        thread.join().unwrap();
    }
}
