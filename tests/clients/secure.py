"""Other people's programs on the listeners of one broker: `secure.py HOMING NODE_MODULES PAHO_C`.

TLS, client certificates, WebSocket, the PROXY protocol and Unix sockets; with mosquitto's clients,
`openssl s_client`, Paho for Python and C, MQTT.js and HAProxy. Certificates are made for each run.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from matrix import PATIENCE, run
from pki import Authority
from programs import Broker, HaProxy, Program, stop_all

HERE = Path(__file__).parent
HOMING, NODE_MODULES, PAHO_C = (Path(each).resolve() for each in sys.argv[1:])
TLS_VERSIONS = ["1.2", "1.3"]
NAMES = "DNS:localhost,IP:127.0.0.1"
USER, PASSWORD = "paho", "a password"


class Place:
    """The certificates, the broker and HAProxy of a run."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = Authority(folder, "authority")
        self.foreign_authority = Authority(folder, "foreign-authority")
        pairs = [
            self.authority.issue("ecdsa.example", "ecdsa", f"DNS:ecdsa.example,{NAMES}"),
            self.authority.issue("rsa.example", "rsa", f"DNS:rsa.example,{NAMES}"),
        ]
        self.authority.issue("ann")
        revoked, _ = self.authority.issue("revoked")
        self.foreign_authority.issue("foreign")
        crl = self.authority.revoke(revoked)

        certificates = [f'{{ certificate = "{certificate}", key = "{key}" }}' for certificate, key in pairs]
        tls = f"[listeners.tls]\ncertificates = [{', '.join(certificates)}]\n"
        mutual = f'client_certificates = "required"\nclient_ca = "{self.authority.file}"\ncrl = ["{crl}"]\n'
        tcp, websocket = 'address = "127.0.0.1:0"\n', 'protocol = "websocket"\n'
        behind = tcp + 'trusted_proxies = ["127.0.0.1"]\n'
        users = folder / "users"
        subprocess.run([HOMING, "passwd", "-c", "-b", users, USER, PASSWORD], check=True, capture_output=True, timeout=PATIENCE)
        known = f'password_file = "{users}"\nanonymous = "never"\n'
        self.unix = folder / "mqtt.sock"
        self.broker = Broker(
            HOMING,
            folder,
            {
                "plain": tcp,
                "tls": tcp + tls,
                "users": tcp + known + tls,
                "mtls": tcp + 'client_id = "%u-*"\n' + tls + mutual,
                "ws": tcp + websocket,
                "wss": tcp + websocket + tls,
                "proxy-v1": behind + 'proxy_protocol = "v1"\n',
                "proxy-tls": behind + 'proxy_protocol = "v2"\nproxy_tls = true\n',
                "proxy-user": behind + 'proxy_protocol = "v2"\nproxy_tls = true\nclient_id = "%u-*"\n',
                "unix": f'address = "unix:{self.unix}"\nmode = "0600"\n',
            },
        )
        self.ports = self.broker.ports
        self.haproxy = HaProxy(folder, self.fronts(pairs[0]))

    def fronts(self, pair):
        """The fronts of HAProxy: how it listens, and what it says to which listener."""
        both = self.folder / "haproxy.pem"
        both.write_text("".join(path.read_text() for path in pair))
        tls = f"ssl crt {both}"
        mutual = f"{tls} ca-file {self.authority.file} verify required"
        to = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}
        return {
            "v1": ("", f"{to['proxy-v1']} send-proxy"),
            "v2-ssl": (tls, f"{to['proxy-tls']} send-proxy-v2-ssl"),
            "v2-ssl-cn": (mutual, f"{to['proxy-user']} send-proxy-v2-ssl-cn"),
            "v2-without-tls": ("", f"{to['proxy-tls']} send-proxy-v2"),
            "v1-to-v2": (tls, f"{to['proxy-tls']} send-proxy"),
        }

    def tcp(self, port):
        return ["-h", "localhost", "-p", str(port)]

    def tls(self, port, version="1.3", certificate=None):
        """Options of mosquitto's clients."""
        options = self.tcp(port) + ["--cafile", str(self.authority.file), "--tls-version", f"tlsv{version}"]
        return options + (self.certificate("--", certificate) if certificate else [])

    def certificate(self, dash, name):
        """The options with a client's certificate, for a program whose options begin with `dash`."""
        return [f"{dash}cert", str(self.folder / f"{name}.pem"), f"{dash}key", str(self.folder / f"{name}.key")]


def publish(where, topic, text, qos=1, client_id=None):
    """Runs mosquitto_pub; returns what it did."""
    who = ["-i", client_id] if client_id else []
    arguments = ["mosquitto_pub", *where, *who, "-t", topic, "-m", text, "-q", str(qos)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE)


def check_published(*arguments, **options):
    done = publish(*arguments, **options)
    assert done.returncode == 0, done.stderr


class Subscriber(Program):
    """A mosquitto_sub that is subscribed."""

    def __init__(self, where, topic, client_id=None):
        # Into a pipe it would keep its lines to itself.
        arguments = ["stdbuf", "-oL", "mosquitto_sub", *where, "-d", "-t", topic, "-q", "2", "-F", "message %q %p"]
        super().__init__(arguments + (["-i", client_id] if client_id else []))
        self.line("Subscribed")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def messages(self):
        return [line for line in self.lines if line.startswith("message ")]


def mosquitto_cases(place, version):
    def delivers(subscriber_at, publisher_at, topic, who=("", "")):
        with Subscriber(subscriber_at, topic, who[0] or None) as subscriber:
            for qos in range(3):
                check_published(publisher_at, topic, f"hello-{qos}", qos, who[1] or None)
                subscriber.line(f"message {qos} hello-{qos}")

    def all_qos_over_tls(topic):
        where = place.tls(place.ports["tls"], version)
        delivers(where, where, topic)

    def plain_to_tls_and_back(topic):
        over_tls, plain = place.tls(place.ports["tls"], version), place.tcp(place.ports["plain"])
        delivers(over_tls, plain, topic)
        delivers(plain, over_tls, topic)

    def common_name_is_user(topic):
        where = place.tls(place.ports["mtls"], version, "ann")
        delivers(where, where, topic, ("ann-sub", "ann-pub"))
        # The listener's client_id is "%u-*".
        refused = publish(where, topic, "taken", client_id="bob-pub")
        assert refused.returncode != 0

    def refused_certificates_publish_nothing(topic):
        port = place.ports["mtls"]
        with Subscriber(place.tcp(place.ports["plain"]), topic) as subscriber:
            for name in ["revoked", "foreign", None]:
                # The listener's client_id is "%u-*": only the certificate may be the reason.
                refused = publish(place.tls(port, version, name), topic, "refused", client_id=f"{name}-pub")
                assert refused.returncode != 0, name
            check_published(place.tls(port, version, "ann"), topic, "accepted", client_id="ann-pub")
            subscriber.line("message 1 accepted")
            assert subscriber.messages() == ["message 1 accepted"]

    def a_foreign_broker_is_refused(topic):
        where = place.tcp(place.ports["tls"]) + ["--tls-version", f"tlsv{version}", "--cafile"]
        assert publish([*where, str(place.foreign_authority.file)], topic, "no").returncode != 0
        check_published([*where, str(place.authority.file)], topic, "yes")

    return [
        all_qos_over_tls,
        plain_to_tls_and_back,
        common_name_is_user,
        refused_certificates_publish_nothing,
        a_foreign_broker_is_refused,
    ]


def s_client(place, listener, version, *options):
    """A running `openssl s_client` that has no input yet."""
    arguments = ["openssl", "s_client", "-connect", f"127.0.0.1:{place.ports[listener]}"]
    arguments += ["-CAfile", place.authority.file, "-verify_return_error", f"-tls{version.replace('.', '_')}"]
    return Program(["stdbuf", "-oL", *arguments, *options], stdin=subprocess.PIPE)


def handshake(place, listener, version, *options):
    """The whole output of an `openssl s_client` that ends after its handshake, and its exit code."""
    client = s_client(place, listener, version, *options)
    try:
        if version == "1.3":
            # In 1.3 the ticket comes after the handshake.
            client.line("Session Ticket arrived")
        client.process.stdin.close()
        code = client.wait()
    finally:
        client.stop()
    return "\n".join(client.lines), code


def refusal(place, listener, version, *options):
    """The output of an `openssl s_client` that the broker disconnects."""
    client = s_client(place, listener, version, *options)
    try:
        code = client.wait()
    finally:
        client.stop()
    output = "\n".join(client.lines)
    assert code != 0, output
    return output


def openssl_cases(place, version):
    def accepted(listener, *options):
        output, code = handshake(place, listener, version, *options)
        assert code == 0, output
        assert f"TLSv{version}" in output, output
        assert "Verify return code: 0 (ok)" in output, output
        return output

    def the_name_selects_the_certificate(_topic):
        for name in ["ecdsa.example", "rsa.example"]:
            output = accepted("tls", "-servername", name)
            assert f"subject=CN = {name}" in output, output

    def the_client_selects_ecdsa_or_rsa(_topic):
        algorithms = {"ecdsa.example": "ECDSA+SHA256", "rsa.example": "RSA-PSS+SHA256"}
        for name, algorithm in algorithms.items():
            output = accepted("tls", "-noservername", "-sigalgs", algorithm)
            assert f"subject=CN = {name}" in output, output

    def application_protocol(_topic):
        assert "ALPN protocol: mqtt" in accepted("tls", "-alpn", "h2,mqtt")
        assert "ALPN protocol: http/1.1" in accepted("wss", "-alpn", "http/1.1")
        assert "No ALPN negotiated" in accepted("tls")
        output = refusal(place, "tls", version, "-alpn", "http/1.1")
        assert "no application protocol" in output, output

    def a_session_is_resumed(_topic):
        for listener in ["tls", "mtls"]:
            ticket = place.folder / f"session-{listener}-{version}"
            who = place.certificate("-", "ann")
            assert "\nNew, TLS" in accepted(listener, *who, "-sess_out", ticket)
            resumed = s_client(place, listener, version, *who, "-sess_in", ticket)
            try:
                resumed.line(f"Reused, TLSv{version}")
            finally:
                resumed.stop()

    def certificates_are_refused(_topic):
        alerts = {"revoked": "certificate revoked", "foreign": "unknown ca", None: "certificate required"}
        for name, alert in alerts.items():
            who = place.certificate("-", name) if name else []
            output = refusal(place, "mtls", version, *who)
            assert f"alert {alert}" in output, output
        accepted("mtls", *place.certificate("-", "ann"))

    return [
        the_name_selects_the_certificate,
        the_client_selects_ecdsa_or_rsa,
        application_protocol,
        a_session_is_resumed,
        certificates_are_refused,
    ]


def old_version_case(place):
    def tls_1_0_and_1_1_are_refused(_topic):
        # At a higher level openssl itself offers no such version.
        weak = ["-cipher", "DEFAULT@SECLEVEL=0"]
        for version in ["1", "1.1"]:
            output = refusal(place, "tls", version, *weak)
            assert "alert" in output and "Cipher is (NONE)" in output, output
        output, code = handshake(place, "tls", "1.2", *weak)
        assert code == 0, output

    return [tls_1_0_and_1_1_are_refused]


def unix_cases(place):
    def all_qos(topic):
        where = ["--unix", str(place.unix)]
        with Subscriber(where, topic) as subscriber:
            for qos in range(3):
                check_published(where, topic, f"hello-{qos}", qos, f"unix-{qos}")
                subscriber.line(f"message {qos} hello-{qos}")
                place.broker.line(f"client_id=unix-{qos} ", f'address="unix:uid={os.getuid()}" ', " connected")

    return [all_qos]


def connect_packet(client_id):
    body = b"\0\4MQTT\4\2\0\x3c" + len(client_id).to_bytes(2, "big") + client_id.encode()
    return bytes([0x10, len(body)]) + body


def first_bytes(port, sent, source="127.0.0.1"):
    """What the broker sends first; nothing if it closes the connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE, (source, 0)) as connection:
            connection.sendall(sent)
            return connection.recv(4)
    except ConnectionError:
        return b""


ACCEPTED = b"\x20\x02\0\0"


def haproxy_cases(place):
    ports = place.haproxy.ports

    def logged_address(where, client_id, topic):
        """A client of 127.0.0.5 reaches the broker, and the log has this address."""
        with Subscriber(place.tcp(place.ports["plain"]), topic) as subscriber:
            for qos in range(3):
                check_published([*where, "-A", "127.0.0.5"], topic, f"hello-{qos}", qos, client_id)
                subscriber.line(f"message {qos} hello-{qos}")
        place.broker.line(f"client_id={client_id} ", "address=127.0.0.5:", " connected")

    def send_proxy(topic):
        logged_address(["-h", "127.0.0.1", "-p", str(ports["v1"])], "behind-v1", topic)

    def send_proxy_v2_ssl(topic):
        for version in TLS_VERSIONS:
            where = place.tls(ports["v2-ssl"], version)
            logged_address(["-h", "127.0.0.1", *where[2:]], f"behind-v2-{version}", topic)

    def send_proxy_v2_ssl_cn(topic):
        where = place.tls(ports["v2-ssl-cn"], "1.3", "ann")
        logged_address(["-h", "127.0.0.1", *where[2:]], "ann-behindv2", topic)
        refused = publish(where, topic, "taken", client_id="bob-behindv2")
        assert refused.returncode != 0

    def a_client_without_tls_is_refused(topic):
        assert publish(place.tcp(ports["v2-without-tls"]), topic, "no", client_id="no-tls").returncode != 0

    def another_version_of_the_header_is_refused(topic):
        assert publish(place.tls(ports["v1-to-v2"]), topic, "no", client_id="v1-to-v2").returncode != 0

    def no_header_is_refused(_topic):
        for listener in ["proxy-v1", "proxy-tls"]:
            assert first_bytes(place.ports[listener], connect_packet("no-header")) == b"", listener

    def a_header_of_others_is_refused(_topic):
        header = b"PROXY TCP4 127.0.0.7 127.0.0.1 4000 1883\r\n"
        port = place.ports["proxy-v1"]
        assert first_bytes(port, header + connect_packet("spoofed"), "127.0.0.9") == b""
        # HAProxy's own header comes first, so that of a client is no MQTT.
        assert first_bytes(ports["v1"], header + connect_packet("spoofed")) == b""
        assert first_bytes(port, header + connect_packet("trusted")) == ACCEPTED
        place.broker.line("client_id=trusted ", "address=127.0.0.7:4000 ", " connected")
        refused = ["spoofed", "no-header", "no-tls", "v1-to-v2", "bob-behindv2"]
        entered = [line for line in place.broker.lines if any(f"client_id={who} " in line for who in refused)]
        assert not any(" connected" in line for line in entered), entered

    return [
        send_proxy,
        send_proxy_v2_ssl,
        send_proxy_v2_ssl_cn,
        a_client_without_tls_is_refused,
        another_version_of_the_header_is_refused,
        no_header_is_refused,
        a_header_of_others_is_refused,
    ]


def drive_clients(place):
    """Runs the drivers of Paho and MQTT.js at each transport; the number of those that failed."""
    authority = str(place.authority.file)
    environment = os.environ | {
        "SSL_CERT_FILE": authority,
        "NODE_EXTRA_CA_CERTS": authority,
        "NODE_PATH": str(NODE_MODULES),
    }
    urls = [
        f"mqtts://127.0.0.1:{place.ports['tls']}",
        f"ws://127.0.0.1:{place.ports['ws']}/mqtt",
        f"wss://127.0.0.1:{place.ports['wss']}/mqtt",
    ]
    failed = 0
    for url in urls:
        for driver in ([sys.executable, HERE / "paho_mqtt.py"], ["node", HERE / "mqttjs.js"]):
            done = subprocess.run([*driver, url, "qos_0", "qos_1", "qos_2"], env=environment, timeout=120)
            failed += done.returncode != 0
    url = f"mqtts://127.0.0.1:{place.ports['users']}"
    done = subprocess.run([PAHO_C, url, USER, PASSWORD], env=environment, timeout=120)
    return failed + (done.returncode != 0)


def main():
    folder = Path(tempfile.mkdtemp())
    failed = 0
    try:
        place = Place(folder)
        for version in TLS_VERSIONS:
            failed += run("mosquitto", f"TLS {version}", mosquitto_cases(place, version))
            failed += run("openssl", f"TLS {version}", openssl_cases(place, version))
        failed += run("openssl", "old TLS", old_version_case(place))
        failed += run("mosquitto", "Unix", unix_cases(place))
        failed += run("HAProxy", "PROXY", haproxy_cases(place))
        failed += drive_clients(place)
        if not place.broker.is_running():
            print(f"FAIL  the broker did not outlive its clients\n{place.broker.tail()}")
            failed += 1
        elif failed:
            print(f"the end of the broker's log:\n{place.broker.tail()}")
    finally:
        stop_all()
        shutil.rmtree(folder)
    return min(1, failed)


sys.exit(main())
