"""The records of the state topic: what is written is read back, and nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.exactly_once.records import (
    BadRecord,
    Decision,
    Entry,
    Marker,
    check_name,
    decode,
    driver_id,
    encode,
    marker_partition,
    task_id,
)

ENTRY = Entry(
    task=1,
    transactional_id="kraftlite-q/1",
    producer_id=1000,
    epoch=3,
    rows=20,
    fingerprint="0" * 32,
    marker_partition=4,
    marker_offset=77,
)
DECISION = Decision(query="q", batch=7, run="r-1", entries=(ENTRY, replace(ENTRY, task=5, transactional_id="kraftlite-q/5")))
MARKER = Marker(query="q", task=1, batch=7, run="r-1", rows=20, fingerprint="ab" * 16)


@pytest.mark.parametrize("record", [DECISION, replace(DECISION, entries=()), MARKER])
def test_what_is_written_is_read_back(record: Decision | Marker) -> None:
    key, value = encode(record)
    assert decode(key, value) == record
    assert decode(key, None) is None
    assert b'"kraftlite.sink":1' in value and value.decode().isascii()


def test_the_topic_names_everything_apart() -> None:
    """A job may be called as another one's task: a slash is in no name."""
    assert task_id("p", "a", 1) != driver_id("p", "a-1") and task_id("p", "a", 1) != driver_id("p", "a/1".replace("/", "."))
    found = {marker_partition("q", task, 9) for task in range(200)}
    assert found == set(range(1, 9)), "markers are never among the decisions"
    with pytest.raises(ValueError, match="at least 2 partitions"):
        marker_partition("q", 1, 1)
    for name in ("", "a/b", "a b", "x" * 201, "ä"):
        with pytest.raises(ValueError, match=r"job\.id=.*letters, digits"):
            check_name(name, "job.id")
    assert check_name("a-b_c.D9", "job.id") == "a-b_c.D9"


def changed(record: Decision | Marker, **fields: Any) -> tuple[bytes, bytes]:
    key, value = encode(record)
    found = json.loads(value)
    found.update(fields)
    return key, json.dumps({name: it for name, it in found.items() if it != "absent"}).encode()


def entry(**fields: Any) -> list[Any]:
    return [{**json.loads(encode(DECISION)[1])["entries"][0], **fields}]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (changed(MARKER, **{"kraftlite.sink": 2}), "kraftlite.sink is 2: this release reads version 1"),
        (changed(MARKER, **{"kraftlite.sink": True}), "kraftlite.sink is True"),
        (changed(MARKER, kind="note"), "kind is 'note'"),
        (changed(MARKER, kind="absent"), "kind is None"),
        (changed(MARKER, kind=["marker"]), "kind is"),
        (changed(MARKER, more=1), "and no others"),
        (changed(MARKER, rows="absent"), "and no others"),
        (changed(MARKER, rows=0), "rows is 0: allowed is a whole number from 1"),
        (changed(MARKER, rows=1.0), "rows is 1.0"),
        (changed(MARKER, task=-1), "task is -1"),
        (changed(MARKER, task=True), "task is True"),
        (changed(MARKER, batch=2**63), "batch is 9223372036854775808"),
        (changed(MARKER, run=""), "run is ''"),
        (changed(MARKER, run=None), "run is None"),
        (changed(MARKER, fingerprint="A" * 32), "fingerprint is"),
        (changed(MARKER, query="p"), "the key is b'q/1', and the value is for 'p/1'"),
        (changed(MARKER, query="q/1"), "query is 'q/1'"),
        (changed(DECISION, entries={}), "entries is {}: allowed is an array"),
        (changed(DECISION, entries=[1]), "an entry has the fields|a entry has the fields"),
        (changed(DECISION, entries=entry() + entry()), "ascending order"),
        (changed(DECISION, entries=entry(epoch=2**15)), "epoch is 32768"),
        (changed(DECISION, entries=entry(producer_id=-1)), "producer_id is -1"),
        (changed(DECISION, entries=entry(marker_partition=0)), "marker_partition is 0: allowed is a whole number from 1"),
        (changed(DECISION, entries=entry(marker_offset=2**62 + 1)), "marker_offset is"),
        (changed(DECISION, entries=entry(transactional_id="")), "transactional_id is ''"),
        (changed(DECISION, entries=entry(transactional_id="-q/1")), "transactional_id is '-q/1'"),
        (changed(DECISION, entries=entry(transactional_id="of-somebody-else")), "allowed is one that ends in -q/1"),
        (changed(DECISION, entries=entry(transactional_id=[])), "transactional_id is"),
        ((b"q", b"[]"), "not a JSON object"),
        ((b"q", b"\xff"), "not JSON"),
        ((b"q", b"[" * 200_000), "not JSON"),
        ((None, b"{}"), "without a key"),
        ((b"q", b" " * (8 * 1024 * 1024 + 1)), "a value of 8388609 bytes"),
    ],
)
def test_everything_else_is_refused(record: tuple[bytes | None, bytes], said: str) -> None:
    with pytest.raises(BadRecord, match=said):
        decode(*record)


JSON = st.recursive(st.none() | st.integers() | st.text(), lambda it: st.lists(it) | st.dictionaries(st.text(), it))


@given(st.binary() | JSON)
def test_bytes_of_others_are_one_error(value: Any) -> None:
    with pytest.raises(BadRecord):
        decode(b"q", value if isinstance(value, bytes) else json.dumps(value).encode())


def test_a_decision_that_is_too_long_is_refused_before_it_is_sent() -> None:
    many = tuple(replace(ENTRY, task=task, transactional_id=f"{'x' * 200}-q/{task}") for task in range(30_000))
    with pytest.raises(BadRecord, match="let the batch have fewer tasks"):
        encode(replace(DECISION, entries=many))
