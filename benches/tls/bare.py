"""Bare MQTT clients for `run`: one socket each, over TCP, TLS or WebSocket, with or without a TLS ticket.

They show what `homing load` has no transport for: WebSockets, and handshakes that resume a TLS session.
"""
import os
import socket
import ssl
import time

UPGRADE = (b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
           b"Sec-WebSocket-Protocol: mqtt\r\n\r\n")


def text(value):
    return len(value).to_bytes(2, "big") + value.encode()


def connect_packet(client_id, user=None, password=None):
    """A CONNECT of MQTT 3.1.1 with Clean Session and a keep alive of an hour. At most 127 bytes follow its header."""
    flags = 0x02 | (0xC0 if user else 0)
    rest = text("MQTT") + bytes((4, flags)) + (3600).to_bytes(2, "big") + text(client_id)
    if user:
        rest += text(user) + text(password)
    return bytes((0x10, len(rest))) + rest


def receive(stream, wanted):
    got = b""
    while len(got) < wanted:
        more = stream.recv(wanted - len(got))
        if not more:
            raise SystemExit(f"closed after {got!r}")
        got += more
    return got


class Clients:
    """Opens connections to one port, and keeps them until `close`."""

    def __init__(self, port, context=None, is_websocket=False, resumes=False):
        self.port, self.context, self.is_websocket, self.resumes = port, context, is_websocket, resumes
        self.ticket, self.resumed, self.open = None, 0, []

    def connect(self, client_id, user=None, password=None):
        stream = socket.create_connection(("127.0.0.1", self.port), 30)
        if self.context:
            stream = self.context.wrap_socket(stream, server_hostname="localhost", session=self.ticket)
            self.resumed += stream.session_reused
        packet = connect_packet(client_id, user, password)
        if self.is_websocket:
            stream.sendall(UPGRADE)
            answer = b""
            while not answer.endswith(b"\r\n\r\n"):
                answer += receive(stream, 1)
            if b" 101 " not in answer:
                raise SystemExit(f"no upgrade: {answer!r}")
            # One masked binary frame. The mask is zero, so the packet is in it as it is.
            stream.sendall(bytes((0x82, 0x80 | len(packet))) + bytes(4) + packet)
            receive(stream, 2)
        else:
            stream.sendall(packet)
        connack = receive(stream, 4)
        if connack[3] != 0:
            raise SystemExit(f"refused: {connack!r}")
        if self.resumes:
            # A ticket of TLS 1.3 comes behind the handshake, so it is there with the CONNACK.
            self.ticket = stream.session
        self.open.append(stream)

    def close(self):
        for stream in self.open:
            stream.close()
        self.open.clear()


def cpu_us(pid):
    """CPU time of all threads of the process in microseconds. None of them ends during a row."""
    nanoseconds = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            nanoseconds += int(file.read().split()[0])
    return nanoseconds / 1_000


def rss_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def measure(pid, clients, connections, credentials=lambda index: (None, None)):
    """Opens `connections` one after the other. Returns CPU microseconds and RSS bytes for each."""
    clients.connect("first", *credentials(0))
    time.sleep(0.3)
    cpu, rss = cpu_us(pid), rss_bytes(pid)
    for index in range(connections):
        clients.connect(f"c{index}", *credentials(index))
    time.sleep(1)
    cost = (cpu_us(pid) - cpu) / connections, (rss_bytes(pid) - rss) / connections
    clients.close()
    return cost


def tls_context(directory, with_certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(directory / "ca.pem")
    if with_certificate:
        context.load_cert_chain(directory / "client.pem", directory / "client.key")
    return context
