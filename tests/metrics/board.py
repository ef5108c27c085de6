"""A broker under load, a Prometheus that scrapes it, and the queries of the board: `board.py PATH_OF_HOMING`.

The clients speak MQTT by hand, so that nothing has to be installed. Everything listens on loopback, on free ports.
"""

import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

SECONDS = 20
RULES = os.path.abspath("config/prometheus/homing-rules.yml")
BOARD = os.path.abspath("config/grafana/homing.json")

CONFIG = """
[[slo]]
name = "pumps"
topic = "pumps/#"
within = "500ms"
target = 0.999
"""

# A bridge of the broker to itself. What it brings has other topics, so that nothing goes round.
BRIDGE = """
[[bridges]]
name = "itself"
addresses = ["mqtt://127.0.0.1:{port}"]
topics = [{{direction = "out", filter = "pumps/#", remote_prefix = "copy/"}}]
"""

# A sink of the broker to a service of this program.
SINK = """
[[sinks]]
name = "service"
url = "http://127.0.0.1:{port}/"
filters = ["pumps/#"]
"""

SCRAPES = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: homing
    static_configs: [{{targets: ["{target}"]}}]
"""


def string(text):
    return len(text).to_bytes(2, "big") + text.encode()


def packet(first, body):
    assert len(body) < 128, "one byte of Remaining Length"
    return bytes([first, len(body)]) + body


class Client:
    """An MQTT 3.1.1 client. It acknowledges every PUBLISH unless it is deaf."""

    def __init__(self, port, client_id, clean=True, deaf=False):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.deaf = deaf
        flags = 2 if clean else 0
        self.send(packet(0x10, string("MQTT") + bytes([4, flags]) + (60).to_bytes(2, "big") + string(client_id)))
        threading.Thread(target=self.read, daemon=True).start()

    def send(self, data):
        self.socket.sendall(data)

    def subscribe(self, topic, qos):
        self.send(packet(0x82, b"\0\1" + string(topic) + bytes([qos])))

    def publish(self, topic, qos, number, retain=0):
        identifier = number.to_bytes(2, "big") if qos else b""
        self.send(packet(0x30 | qos << 1 | retain, string(topic) + identifier + b"payload"))

    def read(self):
        stream = self.socket.makefile("rb")
        try:
            while head := stream.read(2):
                self.take(head[0], stream.read(head[1]))
        except OSError:
            pass

    def take(self, first, body):
        kind, qos = first >> 4, first >> 1 & 3
        if kind == 3 and qos and not self.deaf:
            length = int.from_bytes(body[:2], "big")
            self.send(packet(0x40 if qos == 1 else 0x50, body[2 + length : 4 + length]))
        elif kind == 5:
            self.send(packet(0x62, body[:2]))
        elif kind == 6:
            self.send(packet(0x70, body[:2]))


def load(port, ends):
    """Publishes until `ends`. One receiver reads, one is deaf, one is away, and nobody wants `nothing`."""
    reader, deaf = Client(port, "reader"), Client(port, "deaf", deaf=True)
    away = Client(port, "away", clean=False)
    for client, filters in ((reader, "pumps/#"), (deaf, "pumps/1"), (away, "pumps/2")):
        client.subscribe(filters, 2)
    reader.subscribe("$share/all/lamps/#", 1)
    time.sleep(0.5)
    away.socket.shutdown(socket.SHUT_RDWR)
    publisher, number = Client(port, "publisher"), 0
    while time.monotonic() < ends:
        for qos in (0, 1, 2):
            number = number % 60_000 + 1
            publisher.publish(f"pumps/{number % 5}", qos, number, retain=int(number % 50 == 0))
        number = number % 60_000 + 1
        publisher.publish("nothing", 1, number)
        if number % 20 < 4:
            Client(port, f"short-{number % 7}").socket.close()
        time.sleep(0.02)
    return reader, deaf, publisher


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(what, found, seconds=30):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            if value := found():
                return value
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"tests/metrics: {what}: not within {seconds} s")


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


class Accepting(http.server.BaseHTTPRequestHandler):
    """Accepts what a sink sends."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def service():
    """Starts a service that accepts everything, and returns its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Accepting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def queries():
    """Yields each query of the board with the title of its panel."""
    with open(BOARD, encoding="utf-8") as file:
        board = json.load(file)
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "10s").replace("$instance", ".*")


def main(homing):
    failed = []
    with tempfile.TemporaryDirectory() as work:
        config, log = os.path.join(work, "homing.toml"), os.path.join(work, "log")
        copy = os.path.join(work, "copy")
        os.mkdir(copy)
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG)
        arguments = [homing, "--config", config, "serve", "--listen", "127.0.0.1:0", "--data-dir", os.path.join(work, "data")]
        arguments += ["--set", "admin.addresses=127.0.0.1:0", "--set", "runtime.threads=2", "--set", f"store.ship_to={copy}"]
        with open(log, "w", encoding="utf-8") as file:
            broker = subprocess.Popen(arguments, cwd=work, env={}, stdout=file, stderr=file)
        prometheus = None
        try:

            def port_of(pattern):
                with open(log, encoding="utf-8") as file:
                    match = re.search(pattern, file.read())
                return match and int(match.group(1))

            mqtt = wait_for("the broker listens", lambda: port_of(r"listening on *127\.0\.0\.1:([1-9]\d*)"))
            admin = wait_for("its HTTP interface", lambda: port_of(r"http://127\.0\.0\.1:([1-9]\d*)"))
            with open(config, "a", encoding="utf-8") as file:
                file.write(BRIDGE.format(port=mqtt) + SINK.format(port=service()))
            broker.send_signal(signal.SIGHUP)
            with open(os.path.join(work, "prometheus.yml"), "w", encoding="utf-8") as file:
                file.write(SCRAPES.format(rules=RULES, target=f"127.0.0.1:{admin}"))
            port = free_port()
            prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/tsdb",
                 f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            api = f"http://127.0.0.1:{port}/api/v1"
            wait_for("Prometheus is ready", lambda: get(f"http://127.0.0.1:{port}/-/ready"))
            clients = load(mqtt, time.monotonic() + SECONDS)
            lint = subprocess.run(["promtool", "check", "metrics"], input=get(f"http://127.0.0.1:{admin}/metrics"),
                                  text=True, capture_output=True, check=False)
            print(lint.stdout, lint.stderr, "promtool check metrics:", lint.returncode, sep="\n")
            if lint.returncode:
                failed.append("promtool does not accept the scrape")

            def result_of(query):
                answer = json.loads(get(f"{api}/query?" + urllib.parse.urlencode({"query": query})))
                return answer["data"]["result"]

            count = 0
            for title, query in queries():
                count += 1
                # 0 / 0 is no data.
                if not any(sample["value"][1] != "NaN" for sample in result_of(query)):
                    failed.append(f"{title}: no data: {query}")
            rules = json.loads(get(f"{api}/rules"))["data"]["groups"][0]["rules"]
            failed += [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] != "ok"]
            took = max(float(sample["value"][1]) for sample in result_of("max_over_time(scrape_duration_seconds[10s])"))
            size = max(float(sample["value"][1]) for sample in result_of("scrape_samples_scraped"))
            print(f"{count} queries, {len(rules)} alerts, {size:.0f} series, at most {took * 1000:.1f} ms for a scrape")
            del clients
        finally:
            for process in (prometheus, broker):
                if process:
                    process.send_signal(signal.SIGTERM)
                    process.wait(30)
    for line in failed:
        print("FAILED", line)
    sys.exit(bool(failed))


main(sys.argv[1])
