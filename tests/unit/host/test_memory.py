"""The cycle collector never walks over all of a node's state, and finds what is let go all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import gc, json, sys, weakref

gc.disable()
import kraftlite.host.memory as memory
gc.enable()
memory.tune_gc()
memory.tune_gc()
walked = []
gc.callbacks.append(lambda phase, info: phase == "start" and info["generation"] == 2 and walked.append(len(gc.get_objects())))

class Thing:
    def __init__(self):
        self.other = None

def cycles(count):
    for _ in range(count):
        one, two = Thing(), Thing()
        one.other, two.other = two, one

state = [[n] for n in range(600_000)]
frozen = gc.get_freeze_count()
full = len(walked)
cycles(1_000_000)
result = {
    "walked": max(walked, default=0),
    "full": full,
    "frozen": frozen,
    "frozen_later": gc.get_freeze_count(),
    "things": sum(isinstance(it, Thing) for it in gc.get_objects()),
    "callbacks": len(gc.callbacks),
}
last = Thing()
alive = weakref.ref(last)
state.append(last)
more = [[n] for n in range(600_000)]
del last
state.clear()
result["freed"] = alive() is None
result["left"] = gc.get_freeze_count()
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """In a process of its own: what is frozen stays so."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_full_collection_walks_over_what_came_since_the_last_one(found: dict[str, Any]) -> None:
    assert found["full"] > 0, "state that grows is collected"
    assert found["walked"] < 120_000
    assert found["frozen"] > 450_000


def test_cycles_are_collected_and_nothing_is_frozen_when_nothing_lasts(found: dict[str, Any]) -> None:
    assert found["things"] < 120_000, "of two million"
    assert found["frozen_later"] <= found["frozen"] + 120_000


def test_what_is_frozen_is_freed_by_its_reference_count(found: dict[str, Any]) -> None:
    assert found["freed"]
    assert found["left"] < 750_000, "the first state is gone"


def test_telling_it_twice_is_harmless(found: dict[str, Any]) -> None:
    assert found["callbacks"] == 2


THREADS = """
import sys, threading, time

import kraftlite.host.memory as memory

memory.tune_gc()
sys.setswitchinterval(1e-6)
ended = threading.Event()
error = None

def build():
    global error
    while not ended.is_set():
        try:
            tuple([n] for n in range(3_000))
        except SystemError as found:
            error = found
            ended.set()

thread = threading.Thread(target=build)
thread.start()
kept = []
last = time.monotonic() + 5
while time.monotonic() < last and not ended.is_set():
    kept.append([[n] for n in range(3_000)])
    if len(kept) > 100:
        kept.clear()
ended.set()
thread.join()
print(error)
"""


def test_counting_what_lasts_ends_no_tuple_that_another_thread_builds() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "None"
