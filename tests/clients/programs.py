"""Programs that a test starts: the broker, HAProxy and others, with their output read as it comes."""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from matrix import PATIENCE


STARTED = []


def stop_all():
    """Stops every program that still runs, the last one first."""
    for program in reversed(STARTED):
        program.stop()


class Program:
    """A running program; every line of its output is kept."""

    def __init__(self, arguments, **options):
        self.name = str(arguments[0])
        self.lines = []
        self.is_at_end = False
        self.changed = threading.Condition()
        self.process = subprocess.Popen(
            [str(each) for each in arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            **options,
        )
        STARTED.append(self)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.is_at_end = True
            self.changed.notify_all()

    def line(self, *texts):
        """Waits for a line that has all these texts, and returns it."""
        deadline = time.monotonic() + PATIENCE
        read = 0
        with self.changed:
            while True:
                for line in self.lines[read:]:
                    if all(text in line for text in texts):
                        return line
                read = len(self.lines)
                assert not self.is_at_end, f"{self.name} ended before {texts}:\n{self.tail()}"
                left = deadline - time.monotonic()
                assert left > 0, f"no {texts} from {self.name}:\n{self.tail()}"
                self.changed.wait(left)

    def tail(self):
        return "\n".join(self.lines[-20:])

    def wait(self):
        """Waits for its end, and returns its exit code."""
        code = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        return code

    def is_running(self):
        return self.process.poll() is None

    def stop(self, how=signal.SIGTERM):
        if self.is_running():
            self.process.send_signal(how)
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.wait()


class Broker(Program):
    """The broker with `[[listeners]]` of its own, all on free ports."""

    def __init__(self, program, folder, listeners):
        """`listeners` has pairs of a name and the keys of the listener, as TOML."""
        # Every connect has its line in the log, however fast they come.
        text = "runtime.threads = 2\nlog.events_per_second = 10_000\n"
        text += 'admin.addresses = "off"\n'
        for name, keys in listeners.items():
            text += f'\n[[listeners]]\nname = "{name}"\n{keys}\n'
        (folder / "homing.toml").write_text(text)
        super().__init__([program, "serve", "--config", folder / "homing.toml"], cwd=folder, env={})
        self.line("stop it")
        addresses = [line.split()[2] for line in self.lines if line.strip().startswith("listening on")]
        self.ports = {
            name: int(re.search(r":(\d+)\b", address)[1])
            for name, address in zip(listeners, addresses, strict=True)
            if not address.startswith("unix:")
        }


class HaProxy(Program):
    """HAProxy with a front for each `(bind options, server options)`, all on free ports."""

    def __init__(self, folder, fronts):
        # HAProxy takes bound sockets, so that no other program can take a port meanwhile.
        sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in fronts}
        text = "global\n  nbthread 1\n  maxconn 100\ndefaults\n  mode tcp\n"
        text += "".join(f"  timeout {what} 30s\n" for what in ("connect", "client", "server"))
        for name, (bind, server) in fronts.items():
            text += f"listen {name}\n  bind fd@{sockets[name].fileno()} {bind}\n  server broker {server}\n"
        (folder / "haproxy.cfg").write_text(text)
        self.ports = {name: bound.getsockname()[1] for name, bound in sockets.items()}
        passed = [bound.fileno() for bound in sockets.values()]
        super().__init__([haproxy(), "-db", "-f", folder / "haproxy.cfg"], cwd=folder, pass_fds=passed)
        for bound in sockets.values():
            bound.close()


def haproxy():
    """Debian has it in a folder that is in the path of root alone."""
    found = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    assert found, "haproxy is missing"
    return found
