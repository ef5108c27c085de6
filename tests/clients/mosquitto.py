"""mosquitto_pub and mosquitto_sub, in every version that they speak."""

import queue
import signal
import subprocess
import sys
import threading

from matrix import PATIENCE, check_shared, run
from target import PORT, chosen


class Sub:
    """A mosquitto_sub whose output is read as it comes."""

    def __init__(self, version, client_id, topic, *options, qos=2):
        # Into a pipe it would keep its lines to itself.
        arguments = ["stdbuf", "-oL", "mosquitto_sub", "-p", str(PORT), "-V", version, "-i", client_id, "-d"]
        # One line for a message, told from those of -d by its first word.
        arguments += ["-t", topic, "-q", str(qos), "-F", "message %q %r %p", *options]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def line(self, beginning):
        """The next line with this beginning."""
        while True:
            line = self.lines.get(timeout=PATIENCE)
            assert line is not None, f"mosquitto_sub ended before {beginning!r}"
            if line.startswith(beginning):
                return line

    def ready(self):
        self.line("Subscribed")
        return self

    def message(self):
        """QoS, retain and text of the next message."""
        _, qos, retain, text = self.line("message").split(" ", 3)
        return int(qos), retain == "1", text

    def messages(self):
        """Texts of all that are here, once the process is gone."""
        self.process.wait(PATIENCE)
        out = []
        while (line := self.lines.get(timeout=PATIENCE)) is not None:
            if line.startswith("message"):
                out.append(line.split(" ", 3)[3])
        return out

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)


def pub(version, topic, text, qos, *options):
    arguments = ["mosquitto_pub", "-p", str(PORT), "-V", version, "-t", topic, "-m", text, "-q", str(qos), *options]
    subprocess.run(arguments, check=True, timeout=PATIENCE)


def cases(version, protocol):
    def client_id(role):
        return f"mosq-{version}-{role}"

    def sub(role, topic, *options, qos=2):
        return Sub(protocol, client_id(role), topic, *options, qos=qos)

    def connect(topic):
        subscriber = sub("connect", topic).ready()
        subscriber.stop()
        assert subscriber.process.returncode == 0, subscriber.process.returncode

    def at_qos(qos):
        def case(topic):
            subscriber = sub("qos", topic).ready()
            pub(protocol, topic, "hello", qos)
            assert subscriber.message() == (qos, False, "hello")
            subscriber.stop()

        case.__name__ = f"qos_{qos}"
        return case

    def retained(topic):
        pub(protocol, topic, "kept", 1, "-r")
        subscriber = sub("retained", topic)
        assert subscriber.message() == (1, True, "kept")
        subscriber.stop()
        pub(protocol, topic, "", 1, "-r")

    def will(topic):
        observer = sub("observer", topic).ready()
        options = ["--will-topic", topic, "--will-payload", "gone", "--will-qos", "1"]
        mortal = sub("mortal", f"{topic}/other", *options).ready()
        mortal.process.kill()
        assert observer.message() == (1, False, "gone")
        observer.stop()

    def persistent_session(topic):
        options = ["-c"] + (["-x", "3600"] if version == "5.0" else [])
        # -E: goes as soon as the subscription is there.
        assert sub("absentee", topic, *options, "-E", qos=1).process.wait(PATIENCE) == 0
        sent = [f"message {n}" for n in range(10)]
        for text in sent:
            pub(protocol, topic, text, 1)
        assert sub("absentee", topic, *options, "-C", "10", qos=1).messages() == sent
        assert sub("absentee", topic, "-E").process.wait(PATIENCE) == 0

    def shared_subscription(topic):
        members = [sub(f"member{n}", f"$share/group/{topic}", qos=1).ready() for n in range(2)]
        sent = [f"message {n}" for n in range(20)]
        lines = "".join(f"{text}\n" for text in sent)
        arguments = ["mosquitto_pub", "-p", str(PORT), "-V", protocol, "-t", topic, "-q", "1", "-l"]
        subprocess.run(arguments, input=lines, text=True, check=True, timeout=PATIENCE)
        received = collect(members, len(sent))
        for member in members:
            member.stop()
        check_shared(received, sent)

    return [connect, at_qos(0), at_qos(1), at_qos(2), retained, will, persistent_session, shared_subscription]


def collect(members, count):
    """What each member has, once there are `count` in all."""
    received = [[] for _ in members]
    arrived = queue.Queue()
    for n, member in enumerate(members):
        threading.Thread(target=forward, args=(n, member, arrived), daemon=True).start()
    for _ in range(count):
        n, text = arrived.get(timeout=PATIENCE)
        received[n].append(text)
    return received


def forward(n, member, arrived):
    while (line := member.lines.get()) is not None:
        if line.startswith("message"):
            arrived.put((n, line.split(" ", 3)[3]))


versions = [("3.1", "mqttv31"), ("3.1.1", "mqttv311"), ("5.0", "mqttv5")]
sys.exit(min(1, sum(run("mosquitto", version, chosen(cases(version, protocol))) for version, protocol in versions)))
