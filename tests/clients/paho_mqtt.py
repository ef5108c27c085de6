"""paho-mqtt, in every version that it speaks."""

import queue
import sys
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from matrix import PATIENCE, check_shared, run
from target import HOST, IS_TLS, IS_WEBSOCKET, PORT, SUFFIX, URL, chosen

CLIENT = "paho-mqtt"


class Peer:
    """A connected client; `received` gets its messages, or is shared with others."""

    def __init__(self, protocol, client_id, clean=True, will=None, received=None, ack_timeout=None):
        v5 = protocol == mqtt.MQTTv5
        clean_session = None if v5 else clean
        version = mqtt.CallbackAPIVersion.VERSION2
        self.client = mqtt.Client(
            version,
            client_id,
            clean_session=clean_session,
            protocol=protocol,
            transport="websockets" if IS_WEBSOCKET else "tcp",
            manual_ack=ack_timeout is not None,
        )
        if IS_WEBSOCKET:
            self.client.ws_set_options(path=URL.path)
        if IS_TLS:
            self.client.tls_set()
        self.client_id = client_id
        self.received = received if received is not None else queue.Queue()
        self.connected = queue.Queue()
        self.subscribed = queue.Queue()
        self.disconnected = threading.Event()
        self.told = queue.Queue()
        self.client.on_connect = lambda _client, _data, flags, reason, _properties: self.connected.put((flags, reason))
        self.client.on_subscribe = lambda _client, _data, _id, reasons, _properties: self.subscribed.put(reasons)
        self.client.on_message = lambda _client, _data, message: self.received.put((self.client_id, message))
        self.client.on_disconnect = self.on_disconnect
        if will is not None:
            self.client.will_set(will, "gone", qos=1)
        options = {}
        if v5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 0 if clean else 3600
            if ack_timeout is not None:
                properties.UserProperty = ("ack-timeout", ack_timeout)
            options = {"clean_start": clean, "properties": properties}
        self.client.connect(HOST, PORT, **options)
        self.client.loop_start()
        flags, reason = self.connected.get(timeout=PATIENCE)
        assert not reason.is_failure, reason
        self.session_present = flags.session_present

    def on_disconnect(self, _client, _data, _flags, reason, _properties):
        self.disconnected.set()
        self.told.put(reason)

    def subscribe(self, topic, qos=2):
        self.client.subscribe(topic, qos)
        reasons = self.subscribed.get(timeout=PATIENCE)
        assert [reason.value for reason in reasons] == [qos], reasons
        return self

    def publish(self, topic, text, qos, retain=False):
        info = self.client.publish(topic, text, qos, retain)
        info.wait_for_publish(PATIENCE)
        assert info.is_published(), f"QoS {qos} was not acknowledged"

    def message(self):
        _, message = self.received.get(timeout=PATIENCE)
        return message.qos, message.retain, message.payload.decode()

    def stop(self):
        self.client.disconnect()
        assert self.disconnected.wait(PATIENCE), "no end"
        self.client.loop_stop()

    def die(self):
        """Its socket closes without DISCONNECT."""
        self.client.loop_stop()
        self.client.socket().close()


def cases(version, protocol):
    def peer(role, **options):
        return Peer(protocol, f"paho-{version}-{role}", **options)

    def connect(_topic):
        first = peer("connect")
        assert not first.session_present
        first.stop()

    def at_qos(qos):
        def case(topic):
            subscriber, publisher = peer("subscriber").subscribe(topic), peer("publisher")
            for n in range(10):
                publisher.publish(topic, f"message {n}", qos)
            for n in range(10):
                assert subscriber.message() == (qos, False, f"message {n}")
            subscriber.stop()
            publisher.stop()

        case.__name__ = f"qos_{qos}"
        return case

    def retained(topic):
        publisher = peer("publisher")
        publisher.publish(topic, "kept", 1, retain=True)
        late = peer("late").subscribe(topic)
        assert late.message() == (1, True, "kept")
        publisher.publish(topic, "", 1, retain=True)
        late.stop()
        publisher.stop()

    def will(topic):
        observer = peer("observer").subscribe(topic)
        peer("mortal", will=topic).die()
        assert observer.message() == (1, False, "gone")
        observer.stop()

    def persistent_session(topic):
        absentee = peer("absentee", clean=False).subscribe(topic, qos=1)
        assert not absentee.session_present
        absentee.stop()
        publisher = peer("publisher")
        for n in range(10):
            publisher.publish(topic, f"message {n}", 1)
        back = peer("absentee", clean=False)
        # 3.1 has no Session Present.
        assert back.session_present or version == "3.1"
        for n in range(10):
            assert back.message() == (1, False, f"message {n}")
        back.stop()
        publisher.stop()
        peer("absentee").stop()

    def shared_subscription(topic):
        received = queue.Queue()
        members = [peer(f"member{n}", received=received).subscribe(f"$share/group/{topic}", qos=1) for n in range(2)]
        publisher = peer("publisher")
        sent = [f"message {n}" for n in range(20)]
        for text in sent:
            publisher.publish(topic, text, 1)
        arrived = [received.get(timeout=PATIENCE) for _ in sent]
        for member in [*members, publisher]:
            member.stop()
        by_member = [[m.payload.decode() for who, m in arrived if who == member.client_id] for member in members]
        check_shared(by_member, sent)

    def comes_back_after_an_ack_timeout(topic):
        forgetful = peer("forgetful", clean=False, ack_timeout="1s").subscribe(topic, qos=1)
        publisher = peer("publisher")
        publisher.publish(topic, "held", 1)
        _, first = forgetful.received.get(timeout=PATIENCE)
        # Forgotten: the broker ends the connection, and the client comes back by itself.
        reason = forgetful.told.get(timeout=PATIENCE)
        assert reason.value == 0x97, reason
        flags, reason = forgetful.connected.get(timeout=PATIENCE)
        assert flags.session_present and not reason.is_failure, reason
        _, again = forgetful.received.get(timeout=PATIENCE)
        assert (again.dup, again.mid, again.payload) == (True, first.mid, b"held"), again
        forgetful.client.ack(again.mid, again.qos)
        publisher.publish(topic, "next", 1)
        _, following = forgetful.received.get(timeout=PATIENCE)
        assert (following.dup, following.payload) == (False, b"next"), following
        forgetful.client.ack(following.mid, following.qos)
        forgetful.stop()
        publisher.stop()
        peer("forgetful").stop()

    # Where nothing is resent on a live connection.
    only_v5 = [comes_back_after_an_ack_timeout] if protocol == mqtt.MQTTv5 else []
    every = [connect, at_qos(0), at_qos(1), at_qos(2), retained, will, persistent_session, shared_subscription]
    return every + only_v5


versions = [("3.1", mqtt.MQTTv31), ("3.1.1", mqtt.MQTTv311), ("5.0", mqtt.MQTTv5)]
sys.exit(min(1, sum(run(CLIENT + SUFFIX, version, chosen(cases(version, protocol))) for version, protocol in versions)))
