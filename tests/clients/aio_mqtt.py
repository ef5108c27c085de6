"""aiomqtt, in every version that it speaks."""

import asyncio
import subprocess
import sys

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from matrix import PATIENCE, check_shared, run
from target import PORT

VERSIONS = {
    "3.1": aiomqtt.ProtocolVersion.V31,
    "3.1.1": aiomqtt.ProtocolVersion.V311,
    "5.0": aiomqtt.ProtocolVersion.V5,
}


def peer(version, role, clean=True, will=None):
    options = {"identifier": f"aio-{version}-{role}", "protocol": VERSIONS[version], "timeout": PATIENCE}
    if version == "5.0":
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 0 if clean else 3600
        options |= {"clean_start": clean, "properties": properties}
    else:
        options |= {"clean_session": clean}
    if will is not None:
        options["will"] = aiomqtt.Will(will, "gone", qos=1)
    return aiomqtt.Client("127.0.0.1", PORT, **options)


async def message(client):
    received = await asyncio.wait_for(anext(client.messages), PATIENCE)
    return received.qos, received.retain, received.payload.decode()


def cases(version):
    async def connect(_topic):
        async with peer(version, "connect"):
            pass

    def at_qos(qos):
        async def case(topic):
            async with peer(version, "subscriber") as subscriber, peer(version, "publisher") as publisher:
                await subscriber.subscribe(topic, qos=2)
                for n in range(10):
                    await publisher.publish(topic, f"message {n}", qos=qos)
                for n in range(10):
                    assert await message(subscriber) == (qos, False, f"message {n}")

        case.__name__ = f"qos_{qos}"
        return case

    async def retained(topic):
        async with peer(version, "publisher") as publisher, peer(version, "late") as late:
            await publisher.publish(topic, "kept", qos=1, retain=True)
            await late.subscribe(topic, qos=2)
            assert await message(late) == (1, True, "kept")
            await publisher.publish(topic, "", qos=1, retain=True)

    async def will(topic):
        async with peer(version, "observer") as observer:
            await observer.subscribe(topic, qos=2)
            # It always says DISCONNECT, so another process has to be killed.
            arguments = [sys.executable, __file__, sys.argv[1], version, topic]
            with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as mortal:
                line = await asyncio.wait_for(asyncio.to_thread(mortal.stdout.readline), PATIENCE)
                assert line == "connected\n", line
                mortal.kill()
            assert await message(observer) == (1, False, "gone")

    async def persistent_session(topic):
        async with peer(version, "absentee", clean=False) as absentee:
            await absentee.subscribe(topic, qos=1)
        async with peer(version, "publisher") as publisher:
            for n in range(10):
                await publisher.publish(topic, f"message {n}", qos=1)
        async with peer(version, "absentee", clean=False) as back:
            for n in range(10):
                assert await message(back) == (1, False, f"message {n}")
        async with peer(version, "absentee"):
            pass

    async def shared_subscription(topic):
        sent = [f"message {n}" for n in range(20)]
        received = [[], []]
        everything = asyncio.Event()

        async def collect(member, own):
            async for each in member.messages:
                own.append(each.payload.decode())
                if sum(map(len, received)) >= len(sent):
                    everything.set()

        async with peer(version, "member0") as one, peer(version, "member1") as other:
            tasks = []
            for member, own in [(one, received[0]), (other, received[1])]:
                await member.subscribe(f"$share/group/{topic}", qos=1)
                tasks.append(asyncio.create_task(collect(member, own)))
            async with peer(version, "publisher") as publisher:
                for text in sent:
                    await publisher.publish(topic, text, qos=1)
            await asyncio.wait_for(everything.wait(), PATIENCE)
            for task in tasks:
                task.cancel()
        check_shared(received, sent)

    every = [connect, at_qos(0), at_qos(1), at_qos(2), retained, will, persistent_session, shared_subscription]
    return [in_loop(case) for case in every]


def in_loop(case):
    def run_case(topic):
        asyncio.run(case(topic))

    run_case.__name__ = case.__name__
    return run_case


async def live_until_killed(version, topic):
    async with peer(version, "mortal", will=topic):
        print("connected", flush=True)
        await asyncio.Event().wait()


if len(sys.argv) > 2:
    asyncio.run(live_until_killed(*sys.argv[2:]))
sys.exit(min(1, sum(run("aiomqtt", version, cases(version)) for version in VERSIONS)))
