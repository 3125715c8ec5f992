"""Batches whose CRC is right and whose content is wrong: refused, never appended, never served (LG-01, Kafka's LogValidator)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.fuzz import asking, batches
from tests.fuzz.client import Client
from tests.fuzz.sound import flaw
from tests.fuzz.targets import Target, opened

pytestmark = pytest.mark.xdist_group("fuzz")

SEEDS = range(4)
"""Each draws other codecs and values."""
REFUSALS = {
    -1: "UNKNOWN_SERVER_ERROR, as Kafka for bytes that are not of their codec",
    2: "CORRUPT_MESSAGE",
    87: "INVALID_RECORD",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
}
"""By Kafka's number."""


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with opened("embedded") as found:
        yield found


@pytest.fixture
def client(target: Target) -> Iterator[Client]:
    assert target.ended() is None
    found = Client(target.kafka)
    yield found
    found.close()


@pytest.mark.parametrize("name", batches.BROKEN)
def test_lg_01_a_broken_batch_is_refused(client: Client, name: str) -> None:
    topic = f"broken-{name}"
    asking.create(client, topic)
    for seed in SEEDS:
        error, moved, _wrong = asking.outcome(client, topic, batches.BROKEN[name], seed)
        assert error in REFUSALS, f"seed {seed}: error {error}"
        assert moved == 0, f"seed {seed}: {moved} offsets were given"


@pytest.mark.parametrize("name", batches.ODD)
def test_lg_01_an_odd_batch_is_refused_or_served_sound(client: Client, name: str) -> None:
    topic = f"odd-{name}"
    asking.create(client, topic)
    for seed in SEEDS:
        error, moved, wrong = asking.outcome(client, topic, batches.ODD[name], seed)
        assert wrong is None, f"seed {seed}: {wrong}"
        assert error == 0 or moved == 0, f"seed {seed}: error {error}, {moved} offsets"


def test_the_second_reader_takes_what_is_sound_and_nothing_else() -> None:
    """Its rules are not the node's: what it refuses here must be every broken kind."""
    taken = []
    for name, make in batches.BROKEN.items():
        for seed in SEEDS:
            data = make(random.Random(seed)).encode()
            end, wrong = flaw(data, 0, dense=True)
            if wrong is None and end != 0 and name not in ("control", "sequence-missing"):
                taken.append(f"{name} {seed}")
    assert not taken
    for seed in range(50):
        batch = batches.sound(random.Random(seed))
        assert flaw(batch.encode(), 0, dense=True) == (len(batch.records), None)
