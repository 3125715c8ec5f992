"""The line of an event is what `json` makes of its facts, whatever they are."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.obs.timeline import as_line

HARD = 'a "b" \\ \n \t \x00 \x1f \x7f ü \u2028 \ud83d\ude00'


@pytest.mark.parametrize(
    "value",
    [
        0,
        -5,
        2**63,
        True,
        False,
        1.5,
        "",
        HARD,
        TopicPartition("orders", 3),
        TopicPartition(HARD, 0),
        (),
        (1, 2, 3),
        (1, True),
        (True,),
        (1, None),
        ("a", HARD),
        (NodeId(1), NodeId(2)),
        [1, 2],
        {"a": (1, 2)},
        UUID(int=7),
        b"bytes",
        ((1, 2), (3,)),
    ],
    ids=repr,
)
def test_a_fact_is_written_as_json_writes_it(value: object) -> None:
    facts: dict[str, object] = {"first": 1, "value": value, "cause": "record@5"}
    line = as_line(1_700_000_000_000, NodeId(3), "partition.isr_shrunk", facts)
    whole = {"ts": 1_700_000_000_000, "node": 3, "event": "partition.isr_shrunk", **facts}
    assert line == json.dumps(whole, default=str, separators=(",", ":"), ensure_ascii=False) + "\n"
