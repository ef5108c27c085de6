//! The listeners with settings of their own.

use crate::config::listener::Listener;
use crate::config::listener_checks;
use crate::config::rule::ValueType;
use crate::config::table::section;

section! {
    /// Listeners with settings of their own, 256 at most. `network.listen` is the quick way to
    /// plain listeners; it has its default only if no listener is listed here. `address` is the
    /// only key that each listener needs.
    ///
    /// `name` is the name for the log. `backlog` and `connections` are those of `network` and
    /// `limits`, for this listener. So are `packet_size`, `messages_per_second` and
    /// `bytes_per_second` of `limits`, and `keep_alive_maximum`, which is `maximum` of
    /// `keep_alive`. `connects_per_second` is a rate of this listener besides that of `limits`.
    ///
    /// A reload adds listeners and removes them, and changes the keys of those that stay. A
    /// listener is identified by its `address`. Nobody is disconnected: the clients of a listener
    /// that changes or is removed keep its settings until they leave, and only new connections have
    /// the new ones. `acl_file` holds for them at once. A listener changes as a whole. `mode` and
    /// `group` need a restart, and then the rest of the listener waits, too. All listeners wait
    /// while a key of `auth` or `acl` does.
    ///
    /// `auth` has the methods for the clients of this listener, and `anonymous` says which clients
    /// without credentials may enter; else `auth.methods` and `auth.anonymous` hold.
    /// `password_file` has the users of this listener, in place of `auth.password_file`. A user of
    /// the same name in two files is one user to rules, bans and the owners of sessions. SIGHUP
    /// reads the file again.
    ///
    /// `versions` has the versions of MQTT that clients may speak: some of "3.1", "3.1.1" and
    /// "5.0"; all if left out. Other clients are refused (5.0: 0x84; 3.x: return code 1).
    /// `client_id` is the form of the client ids: %u is the user name, and * any text. A `*`
    /// matches no text with the character beside %u, and must not be beside %u itself: so with
    /// "%u-*" nobody can take the client id of another user. A client with another client id is
    /// refused (5.0: 0x85; 3.x: return code 2). An id that the broker assigns is always allowed.
    ///
    /// `acl_file` has the rules about topics for the clients of this listener, in place of
    /// `acl.file`. A session that is away keeps the rules of the listener by which its client came
    /// last. SIGHUP reads the file again.
    ///
    /// `mount_point` ("tenant-a/") keeps the clients of this listener to the topics below it. The
    /// prefix is added to the topics and filters that clients name ($share/NAME/FILTER: before
    /// FILTER), and removed from the topics that clients get. All rules, such as those of ACL
    /// files, see whole topics. The clients get nothing of $SYS and other topics of the broker, may
    /// publish to $delayed/SECONDS/TOPIC and no other topic with $, and may request redelivery
    /// times. docs/listeners.md has the details.
    ///
    /// An `address` may be unix:/path, or unix:./path below the working directory. `mode` ("0660")
    /// and `group` are the permissions and the group of the socket. A socket that a dead process
    /// left there is replaced.
    ///
    /// `protocol` is "mqtt" or "websocket". A WebSocket has the path `websocket_path` ("/mqtt"; "*"
    /// accepts any). `origins` lists the web pages that may connect, such as app.example.com with
    /// https:// before it; "*" accepts any. Without it only pages of the same host may, and
    /// programs that are no browser. Without TLS that host is an address or a private name, such
    /// as plc-7 or plc-7.local: DNS rebinding can forge a public name.
    ///
    /// `share` is the part of `limits.retained_messages`, `retained_bytes`, `delayed_messages` and
    /// `delayed_bytes` that the clients of the listener may take together, in percent.
    ///
    /// `proxy_protocol` is for a listener behind HAProxy or another proxy: "v1", "v2" or "any".
    /// Each connection must begin with a PROXY header, and the address in it counts as the
    /// client's. The header is believed only from `trusted_proxies`, which is required unless the
    /// listener is on loopback or a Unix socket. With `proxy_tls` the header must say that the
    /// client used TLS; the common name of a verified certificate in it is the user name. A
    /// WebSocket listener believes X-Forwarded-For from `trusted_proxies`; a client without an
    /// address in this header does not count as one of this machine.
    ///
    /// [listeners.tls] turns TLS on. `certificates` has the certificates with their keys (PEM). The
    /// name that the client asks for selects one; else the first that the client can verify. A
    /// file with one certificate gets the rest of its chain from the authorities in `chain`.
    /// `minimum` is the lowest version ("1.2"). `client_certificates` asks clients for a
    /// certificate: "off" is the default, with "optional" a client may have none, and with
    /// "required" it must have one. A certificate has to be issued by an authority in the file
    /// `client_ca`, and must not be in a revocation list of `crl`; `crl_check` is "leaf" or
    /// "chain". `certificate_user` selects the user name: "cn", "san_dns", "san_uri", "san_email"
    /// or "subject". With "none" the certificate lets the client connect but names nobody, so the
    /// user name and password of the client count. With `certificate_dates = false` the dates of
    /// clients' certificates are not checked. `alpn` has the application protocols: "mqtt" by
    /// default, and "http/1.1" with WebSocket, which is what browsers offer. A client that offers
    /// only others is refused; an empty list turns the check off. `groups` has the key exchange
    /// groups, `record_size` the longest record ("16 KiB"), and `tickets = false` stops clients
    /// from resuming sessions. docs/recipes.md has a recipe.
    [[listeners]] Listener, ValueType::Tables("listeners", listener_checks::problems).only(),
    reload: NewConnections,
    example: "[[listeners]]\n\
              address = \"127.0.0.1:1883\"\n\
              \n\
              [[listeners]]\n\
              name = \"devices\"\n\
              address = \"0.0.0.0:8883\"\n\
              connections = 50_000\n\
              [listeners.tls]\n\
              certificates = [{ certificate = \"server.pem\", key = \"server.key\" }]\n\
              client_certificates = \"optional\"\n\
              client_ca = \"ca.pem\"\n";
}
