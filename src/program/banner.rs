//! The message of the start: where the broker listens, and who may connect there.

use homing::broker::{Broker, EntranceRisk, ListenerNews, OpenListener, bind};
use homing::config::ClientCertificates;

/// Returns the message of the start. `administration` says where the HTTP interface is, if it runs.
pub(crate) fn banner(
    broker: &Broker,
    configuration: &str,
    storage: &str,
    administration: Option<&str>,
) -> String {
    let mut text = format!("Homing {}: MQTT 3.1, 3.1.1 and 5.0\n", env!("CARGO_PKG_VERSION"));
    for listener in broker.listeners() {
        text += &format!("  listening on    {listener}\n");
    }
    for listener in broker.listeners() {
        text += &format!("  may connect     to {}: {}\n", listener.address, entrants(listener));
    }
    if let Some(administration) = administration {
        text += &format!("  administration  {administration}\n");
    }
    text += &format!("  configuration   {configuration}\n");
    text += &format!("  storage         {storage}\n");
    let plain = broker.listeners().iter().find_map(|listener| Some((listener, listener.plain_address()?)));
    if let Some((listener, address)) = plain {
        let (host, port) = (bind::reachable(address).ip(), address.port());
        let user = if listener.admits_anonymous() { "" } else { "-u USER -P PASSWORD " };
        text +=
            &format!("  try it          mosquitto_sub -h {host} -p {port} {user}-q 1 -v -t 'greetings/#'\n");
        text += &format!(
            "                  mosquitto_pub -h {host} -p {port} {user}-q 1 -t greetings/hello -m hi\n"
        );
    }
    text + "  stop it         Ctrl-C (SIGINT) or SIGTERM; a second one stops it at once"
}

/// Logs the result of a reload for the listeners, and the clients that may connect to new and
/// changed ones.
pub(crate) fn log_listeners(news: &ListenerNews) {
    for listener in &news.opened {
        let may_connect = entrants(listener);
        tracing::info!(event = "listener.opened", %listener, may_connect, "a listener was opened");
    }
    for listener in &news.changed {
        let may_connect = entrants(listener);
        tracing::info!(event = "listener.changed", %listener, may_connect, "a listener has new settings for new connections");
    }
    for listener in &news.closed {
        tracing::info!(event = "listener.closed", %listener, "a listener was closed; its clients stay connected");
    }
    warn_of_entrances(&news.opened);
    warn_of_entrances(&news.changed);
}

/// Writes a warning for each listener that others can reach and that lets nobody in, or everybody,
/// or carries passwords in the clear.
pub(crate) fn warn_of_entrances(listeners: &[OpenListener]) {
    for listener in listeners {
        let address = &listener.address;
        match listener.risk() {
            Some(EntranceRisk::OpenToAll) => {
                tracing::warn!(event = "listener.open_to_all", %address, "nothing is authenticated: every client that reaches this address may publish and subscribe");
            }
            Some(EntranceRisk::ClosedToAll) => {
                tracing::warn!(event = "listener.closed_to_all", %address, "nobody can connect by this listener: set auth.password_file (`homing passwd` makes one), or auth.anonymous = \"always\" to let everybody in");
            }
            Some(EntranceRisk::Unencrypted) => {
                tracing::warn!(event = "listener.unencrypted", %address, "passwords and messages can be read on the way to this listener: give it TLS (listeners.tls), or put a proxy with TLS in front of a listener on loopback");
            }
            // The banner says who may connect.
            Some(EntranceRisk::AnonymousToo) | None => {}
        }
    }
}

/// Writes a warning for each listener whose clients may send names that nothing proves, while
/// another one proves names.
pub(crate) fn warn_of_unproven_names(all: &[OpenListener]) {
    for OpenListener { address, .. } in OpenListener::with_unproven_names(all) {
        tracing::warn!(event = "listener.names_unproven", %address, "this listener lets clients in whose user name nothing proves, and the broker also proves names: such clients have the rules of clients without a user name; set auth.anonymous = \"never\" for it, or methods of authentication");
    }
}

/// Returns who may connect to a listener.
fn entrants(listener: &OpenListener) -> String {
    let is_open = listener.admits_anonymous();
    let (has_users, has_tokens) = (listener.has_passwords(), listener.has_tokens());
    let asks_certificates = listener.has_certificates();
    if is_open && !listener.verifies() {
        return "everybody: nothing is authenticated".to_owned();
    }
    let parts = [
        (asks_certificates, "clients whose certificate has a user name"),
        (has_tokens, "clients with a token (JWT)"),
        (has_users, "users of the password file"),
        (listener.has_service(), "users that the HTTP service accepts"),
        (is_open, "clients without a user name"),
    ];
    let may: Vec<&str> = parts.iter().filter(|(may, _)| *may).map(|(_, who)| *who).collect();
    if may.is_empty() {
        return "nobody: set auth.password_file, or auth.anonymous".to_owned();
    }
    let only = listener.client_certificates == ClientCertificates::Required;
    may.join(", and ") + if only { "; all need a certificate" } else { "" }
}
