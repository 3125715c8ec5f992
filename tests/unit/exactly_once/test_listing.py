"""Names of transactions and stamps, told apart from those of others (SX-06, SX-07)."""

from __future__ import annotations

import pytest

from kraftlite.audit.sink import Place, Seen, stamped
from kraftlite.exactly_once.listing import has_strays, query_and_task
from kraftlite.exactly_once.outcomes import Outcome
from kraftlite.exactly_once.records import Decision, Entry, driver_id, task_id
from kraftlite.log.batch import Record
from kraftlite.model.producer import Producer


@pytest.mark.parametrize("query", ["q", "8f0c1f6e-5f5c-4a0e-9a57-5f3f0a2d0d1c", "nightly-1", "q.job"])
def test_sx_06_the_id_of_a_task_names_its_query(query: str) -> None:
    assert query_and_task("kraftlite", task_id("kraftlite", query, 12)) == (query, 12)
    assert query_and_task("kraftlite", driver_id("kraftlite", query)) is None
    assert query_and_task("other", task_id("kraftlite", query, 12)) is None


@pytest.mark.parametrize(
    "name", ["", "kraftlite", "kraftlite-/1", "kraftlite-q/", "kraftlite-q/x", "kraftlite-q/²", "kraftlite-a b/1"]
)
def test_sx_06_ids_of_others(name: str) -> None:
    assert query_and_task("kraftlite", name) is None


def test_sx_07_stamps() -> None:
    assert stamped(b"query/7/2/15") == (Place("query", 7, 2), 15)
    for wrong in (
        None,
        b"",
        b"query/7/2",
        b"query/7/2/15/1",
        b"query/-1/2/3",
        b"query/7/2/x",
        b"q/7/2/\xb2",
        b"q/7/2/" + b"9" * 19,
    ):
        assert stamped(wrong) is None


def test_sx_07_a_row_that_was_read_with_a_stamp_is_judged_by_the_one_it_was_written_with() -> None:
    """The sink puts its stamp behind the row's own headers, among which is that of the query that wrote what it has read."""
    headers = (("kraftlite.batch", b"upstream/7/2/15"), ("other", b"x"), ("kraftlite.batch", b"copy/3/0/1"))
    seen = Seen()
    seen.add(Outcome(9, Producer(5, 1), True, True, Record(None, b"v", headers)))
    assert {place: list(it) for place, it in seen.indexes.items()} == {Place("copy", 3, 0): [1]}
    assert seen.stamped_of[Producer(5, 1)] == 1


def decided(batch: int, *epochs: int | None, producer_id: int = 0) -> Decision:
    """Of a task for each epoch; None: it has no rows."""
    entries = tuple(
        Entry(
            task=task,
            transactional_id=task_id("p", "q", task),
            producer_id=producer_id + task,
            epoch=epoch,
            rows=1,
            fingerprint="0" * 32,
            marker_partition=1,
            marker_offset=0,
        )
        for task, epoch in enumerate(epochs)
        if epoch is not None
    )
    return Decision(query="q", batch=batch, run="r", entries=entries)


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (None, decided(0, 0, 0), False),
        (None, decided(0, 0, 2), True),
        (decided(0, 0, 5), decided(1, 1, 6), False),
        (decided(0, 0, 5), decided(1, None, 6), False),
        (decided(0, None, 5), decided(1, 7, 6), False),
        (decided(0, 0, 5), decided(1, 1, 7), True),
        (decided(0, 32766), decided(1, 0, producer_id=9), True),
        (decided(1, 0), decided(1, 1), True),
    ],
    ids=["first", "first run died", "next", "no rows", "no rows before", "twice", "another producer id", "runs again"],
)
def test_sx_04_epochs_tell_whether_somebody_has_staged_in_between(before: Decision | None, now: Decision, found: bool) -> None:
    assert has_strays(before, now.batch, now.entries) is found
