"""Gives a broker the client and the topics that the examples of its description name: `seed.py PORT`.

The client acknowledges nothing. It connects again if its connection ends, until standard input ends.
"""

import select
import socket
import sys


def packet(first, body):
    length, rest = b"", len(body)
    while True:
        rest, digit = divmod(rest, 128)
        length += bytes([digit | (0x80 if rest else 0)])
        if not rest:
            return bytes([first]) + length + body


def text(value):
    return len(value).to_bytes(2, "big") + value


def connect(port, client_id):
    client = socket.create_connection(("127.0.0.1", port), 10)
    # MQTT 3.1.1, a session that stays, Keep Alive off.
    client.sendall(packet(0x10, text(b"MQTT") + b"\x04\x00\x00\x00" + text(client_id)))
    # With or without a session from before: a request may have ended it.
    assert client.recv(4) in (b"\x20\x02\x00\x00", b"\x20\x02\x01\x00"), "CONNACK"
    return client


def publish(client, topic, flags, packet_id):
    client.sendall(packet(0x30 | flags, text(topic) + packet_id.to_bytes(2, "big") + b"on"))
    assert client.recv(4) == b"\x40\x02" + packet_id.to_bytes(2, "big"), "PUBACK"


def subscriber(port):
    """Connects the client that acknowledges nothing."""
    client = connect(port, b"pump-7")
    client.sendall(packet(0x82, b"\x00\x01" + text(b"pumps/#") + b"\x01"))
    return client


port = int(sys.argv[1])
pump, app = subscriber(port), connect(port, b"app")
for number in range(1, 100):
    publish(app, b"pumps/7/set", 0x02, number)
publish(app, b"pumps/7/set", 0x03, 100)
publish(app, b"$delayed/3600/pumps/7/set", 0x02, 101)
print("ready", flush=True)
while True:
    # A request may disconnect the client or end its session.
    ready, _, _ = select.select([sys.stdin, pump], [], [])
    if sys.stdin in ready:
        break
    try:
        gone = pump.recv(4096) == b""
    except OSError:
        gone = True
    if gone:
        pump.close()
        pump = subscriber(port)
        # A request may have disconnected this client, too.
        app.close()
        app = connect(port, b"app")
        publish(app, b"pumps/7/set", 0x02, 102)
