"""Runs cases of one client and prints a line for each; what the drivers in Python share."""

import time
import traceback

# How long anything that must come may take, seconds.
PATIENCE = 15


def run(client, version, cases):
    """Runs each case with a topic of its own; the number of those that failed."""
    failed = 0
    for case in cases:
        name = case.__name__
        topic = f"{client}/{version}/{name}"
        begun = time.monotonic()
        try:
            case(topic)
            print(f"ok    {client} {version} {name} ({time.monotonic() - begun:.2f} s)", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {client} {version} {name}\n{traceback.format_exc()}", flush=True)
    return failed


def check_shared(received, sent):
    """Each message went to one member, and none was left out of the work."""
    everything = [text for member in received for text in member]
    assert sorted(everything) == sorted(sent), f"sent {sent}, received {received}"
    assert all(received), f"a member got nothing: {received}"
