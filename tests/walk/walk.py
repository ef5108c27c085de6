"""Counts the calls for one message: see `run` beside it for the rule."""

import collections
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

# The in-flight window has room for all of them, because the receiver acknowledges none before the count ends.
MESSAGES = 16


def text(value):
    return len(value).to_bytes(2, "big") + value


def packet(first, body):
    assert len(body) < 128
    return bytes([first, len(body)]) + body


class Client:
    def __init__(self, port, name, clean):
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        flags = 2 if clean else 0
        self.socket.sendall(packet(0x10, text(b"MQTT") + bytes([4, flags, 0, 0]) + text(name)))
        assert self.read()[0] == 0x20

    def read(self):
        head = self.exactly(2)
        return head[0], self.exactly(head[1])

    def exactly(self, count):
        got = b""
        while len(got) < count:
            more = self.socket.recv(count - len(got))
            assert more, "the broker closed the connection"
            got += more
        return got


def send(publisher, receiver, count):
    """Publishes one message after the other, and returns the packet identifiers that the receiver has to acknowledge."""
    identifiers = []
    for number in range(1, count + 1):
        publisher.socket.sendall(packet(0x32, text(b"walk") + number.to_bytes(2, "big") + b"x"))
        first, body = receiver.read()
        assert first & 0xF0 == 0x30, first
        assert publisher.read()[0] == 0x40
        identifiers.append(body[6:8])
    return identifiers


def control(process, *arguments):
    subprocess.run(["callgrind_control", *arguments, str(process.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def subscribe(receiver, first, count):
    for number in range(first, first + count):
        receiver.socket.sendall(packet(0x82, number.to_bytes(2, "big") + text(b"walk/%d" % number) + b"\1"))
        assert receiver.read()[0] == 0x90


def profile(homing, folder, walk):
    """Returns the file that callgrind wrote about MESSAGES times the walk."""
    out = os.path.join(folder, "callgrind")
    addresses = os.path.join(folder, "addresses")
    environment = dict(os.environ, HOMING_RUNTIME__THREADS="1", HOMING_NETWORK__ADDRESSES_FILE=addresses,
                       HOMING_STORE__PATH=os.path.join(folder, "store"),
                       HOMING_AUTH__ANONYMOUS="always", HOMING_SYS__PUBLISH_INTERVAL="off")
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", homing, "serve", "--listen", "127.0.0.1:0"]
    log = open(os.path.join(folder, "log"), "w+")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        found = None
        for _ in range(1200):
            assert process.poll() is None, open(log.name).read()
            found = os.path.exists(addresses) and re.search(r":(\d+)", open(addresses).read())
            if found:
                break
            time.sleep(0.1)
        assert found, "the broker did not start"
        port = int(found.group(1))
        receiver, publisher = Client(port, b"receiver", False), Client(port, b"publisher", True)
        receiver.socket.sendall(packet(0x82, b"\0\1" + text(b"walk") + b"\1"))
        assert receiver.read()[0] == 0x90
        for identifier in send(publisher, receiver, MESSAGES):
            receiver.socket.sendall(packet(0x40, identifier))
        subscribe(receiver, 100, MESSAGES)
        time.sleep(2)
        control(process, "-z")
        if walk == "publish":
            send(publisher, receiver, MESSAGES)
        else:
            subscribe(receiver, 200, MESSAGES)
        control(process, "-d")
        return next(os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.startswith("callgrind."))
    finally:
        process.terminate()
        process.wait(60)


def edges(path):
    """Yields (caller's file, caller, callee's file, callee, calls)."""
    names, files = {}, {}

    def named(table, value):
        number, _, name = value.partition(" ")
        if name:
            table[number] = name
        return table[number]

    file = function = called_file = called = None
    for line in open(path):
        line = line.rstrip("\n")
        key, separator, value = line.partition("=")
        if not separator:
            continue
        if key == "fl":
            file = named(files, value)
        elif key in ("fi", "fe"):
            named(files, value)
        elif key == "fn":
            function = named(names, value)
        elif key in ("cfi", "cfl"):
            called_file = named(files, value)
        elif key == "cfn":
            called = named(names, value)
        elif key == "calls":
            yield file, function, called_file or file, called, int(value.split()[0])
            called_file = None


def room(file):
    """Returns the folder of a file of this repository, from its folder of sources on; `None` for another file."""
    place = re.search(r"(?:^|/)(?:crates/core/)?src/(.+\.rs)$", file or "")
    if not place or "/registry/" in file or "/rustc/" in file or "/library/" in file:
        return None
    return os.path.dirname(place.group(1)) or "root"


def owner(function):
    """Returns the function that a closure stands in; any other function itself."""
    return re.sub(r"::\{.*?closure.*", "", function)


DERIVED = re.compile(r"(core::(clone|cmp|fmt|default|hash|convert|ops)|core::borrow)::|as core::|drop_in_place")


def main():
    homing, walk, listed = sys.argv[1], sys.argv[2], "--list" in sys.argv
    calls, callers, entered = collections.Counter(), set(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for file, function, called_file, called, count in edges(profile(homing, folder, walk)):
            here, there = room(file), room(called_file)
            if there is None or "store" in ((here or "").split("/")[0], there.split("/")[0]) or "closure" in called or DERIVED.search(called):
                continue
            calls[function, here, called, there] += count
            entered[called] += count
            if here is not None:
                callers.add(owner(function))
    # A tick of the clock calls some functions as often as the messages do, from one that runs less often.
    often = [edge for edge, count in calls.items() if count >= MESSAGES * 0.9 and not 0 < entered[owner(edge[0])] < MESSAGES * 0.9]
    leaves = {called for _, _, called, _ in often if called not in callers}
    steps = sorted((there, called, here or "std") for _, here, called, there in often if called not in leaves)
    crossings = {(here, called) for there, called, here in steps if here not in ("std", there)}
    if listed:
        for there, called, here in steps:
            print(f"{here:24} -> {there:24} {called}")
    functions = {called for _, called, _ in steps}
    modules = {(here.split("/")[0], called) for there, called, here in steps if here != "std" and here.split("/")[0] != there.split("/")[0]}
    print(f"{walk}: {len(functions)} functions, {len(modules)} crossings of modules and {len(crossings)} of folders; besides {len(leaves)} leaves")


main()
