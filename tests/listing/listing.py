"""A million sessions, listed over HTTP: `listing.py PATH_OF_HOMING [SESSIONS]`.

Every session is listed exactly once, in 30 s or less. Meanwhile a pair of clients exchanges messages, and the report has the
times of its acknowledged round trips without and with the listing. Run it on a quiet machine.
"""

import http.client
import multiprocessing
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

SECONDS = 30
THREADS = 2
CLIENT_ID = re.compile(rb'"client_id":"([^"]*)"')
NEXT = re.compile(rb'"next":"([^"]*)"')


def text(value):
    return len(value).to_bytes(2, "big") + value


def connect_packet(client_id, flags):
    body = text(b"MQTT") + b"\x04" + bytes([flags]) + b"\x00\x00" + text(client_id)
    return bytes([0x10, len(body)]) + body


def mqtt(path):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(30)
    client.connect(path)
    return client


def make_sessions(path, numbers):
    for number in numbers:
        with mqtt(path) as client:
            client.sendall(connect_packet(b"device-%07d" % number, 0x00) + b"\xe0\x00")
            assert client.recv(4) == b"\x20\x02\x00\x00", "CONNACK"


def exchange(path, stop, times):
    """Publishes at QoS 1 to itself, one message at a time, and puts the times of the round trips, in seconds."""
    client = mqtt(path)
    client.sendall(connect_packet(b"pair", 0x02) + b"\x82\x06\x00\x01\x00\x01t\x00")
    received = b""
    while len(received) < 9:
        received += client.recv(64)
    all_times = []
    while not stop.is_set():
        began = time.perf_counter()
        client.sendall(b"\x32\x07\x00\x01t\x00\x01on")
        received = b""
        # PUBLISH at QoS 0 of 7 bytes, and PUBACK.
        while len(received) < 11:
            received += client.recv(64)
        all_times.append(time.perf_counter() - began)
        time.sleep(0.001)
    times.put(all_times)


class Pair:
    """A pair that exchanges messages in a process of its own."""

    def __init__(self, path):
        self.stop, self.times = multiprocessing.Event(), multiprocessing.Queue()
        self.process = multiprocessing.Process(target=exchange, args=(path, self.stop, self.times))
        self.process.start()

    def p99(self):
        self.stop.set()
        times = sorted(self.times.get(timeout=30))
        self.process.join()
        return times[len(times) * 99 // 100]


def get(path, asked):
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    connection.request("GET", f"/api/v1/clients{asked}", headers={"Connection": "close"})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, body
    return body


def listing(path):
    """Returns every client id of the listing that has the prefix `device-`."""
    found, query = [], ""
    while True:
        body = get(path, f"?limit=1000{query}")
        found += CLIENT_ID.findall(body)
        following = NEXT.search(body)
        if not following:
            return found
        query = "&cursor=" + following.group(1).decode()


def main():
    homing, sessions = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    with tempfile.TemporaryDirectory() as work:
        clients, admin = f"{work}/mqtt", f"{work}/admin"
        settings = pathlib.Path(work, "homing.toml")
        settings.write_text(f'[[listeners]]\naddress = "unix:{clients}"\nanonymous = "always"\n')
        command = [homing, "serve", "--ephemeral", "--config", str(settings), "--log-level", "warn"]
        limits = ["limits.memory=8GiB", "limits.sessions=2000000"]
        for setting in ["admin.addresses=off", f"admin.socket={admin}", f"runtime.threads={THREADS}", *limits]:
            command += ["--set", setting]
        broker = subprocess.Popen(command, cwd=work, env={})
        try:
            while not pathlib.Path(clients).exists():
                assert broker.poll() is None, "the broker has ended"
                time.sleep(0.05)
            began = time.perf_counter()
            halves = [multiprocessing.Process(target=make_sessions, args=(clients, range(at, sessions, 2))) for at in (0, 1)]
            for half in halves:
                half.start()
            for half in halves:
                half.join()
                assert half.exitcode == 0, "the sessions cannot be made"
            print(f"{sessions} sessions were made in {time.perf_counter() - began:.1f} s", flush=True)
            quiet = Pair(clients)
            time.sleep(10)
            quiet = quiet.p99()
            busy = Pair(clients)
            began = time.perf_counter()
            found = listing(admin)
            took = time.perf_counter() - began
            busy = busy.p99()
            began = time.perf_counter()
            top = get(admin, "?sort=queued")
            top_took = time.perf_counter() - began
        finally:
            broker.terminate()
            broker.wait()
    found = [client_id for client_id in found if client_id != b"pair"]
    once = len(found) == len(set(found)) == sessions
    print(f"{len(found)} sessions were listed in {took:.1f} s ({SECONDS} s are allowed), each once: {once}")
    print(f"p99 of a round trip of another pair: {quiet * 1e3:.2f} ms without the listing, {busy * 1e3:.2f} ms with it")
    complete = b'"complete":true' in top
    print(f"/api/v1/clients?sort=queued looked at all sessions in {top_took:.1f} s: {complete}")
    sys.exit(0 if once and took <= SECONDS and complete else 1)


main()
