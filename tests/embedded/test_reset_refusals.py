"""group reset-offsets where brokers refuse to tell offsets of the logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest

from kraftlite.cli.group_reset import Reset, plan
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.record_requests import EARLIEST, LATEST


class Answering:
    """A cluster that answers ListOffsets. `codes`: of partitions that cannot say."""

    def __init__(self, codes: dict[tuple[str, int], ErrorCode]) -> None:
        self.codes = codes

    def leaders(self, names: list[str]) -> dict[tuple[str, int], int | None]:
        return {("orders", 0): 1, ("orders", 1): None if ("orders", 1) in self.codes else 1}

    def list_offsets(self, wanted: dict[tuple[str, int], int]) -> dict[tuple[str, int], tuple[ErrorCode, int, int]]:
        offsets = {LATEST: 100, EARLIEST: 10}
        return {
            tp: (self.codes.get(tp, ErrorCode.NONE), -1 if tp in self.codes else offsets.get(at, 50), -1)
            for tp, at in wanted.items()
        }


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[ErrorCode], Any]:
    monkeypatch.setattr("kraftlite.client.admin.list_offsets", lambda cluster, wanted, leaders: cluster.list_offsets(wanted))
    monkeypatch.setattr("kraftlite.cli.group_reset.selected", lambda cluster, topics, known: sorted(known))
    return lambda code: Answering({} if code is ErrorCode.NONE else {("orders", 1): code})


EVERY_LOOKUP = (
    Reset(to_earliest=True),
    Reset(to_latest=True),
    Reset(to_datetime="2026-01-01T00:00:00"),
    Reset(by_duration="P1D"),
)


@pytest.mark.parametrize("wanted", EVERY_LOOKUP)
@pytest.mark.parametrize("code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR])
def test_to_28_a_partition_that_cannot_say_is_not_set_to_its_end(answering: Any, wanted: Reset, code: ErrorCode) -> None:
    committed = {("orders", 0): 20, ("orders", 1): 20}
    assert len(plan(answering(ErrorCode.NONE), "g", committed, wanted, (), several=False)) == 2
    with pytest.raises(click.ClickException, match=r"orders-1: "):
        plan(answering(code), "g", committed, wanted, (), several=False)


def test_to_28_a_partition_that_is_gone_is_left_out(answering: Any) -> None:
    cluster = answering(ErrorCode.LEADER_NOT_AVAILABLE)
    cluster.leaders = lambda names: {("orders", 0): 1}
    for wanted in EVERY_LOOKUP:
        assert list(plan(cluster, "g", {("orders", 0): 1, ("orders", 1): 1}, wanted, (), several=False)) == [("orders", 0)]


@pytest.mark.parametrize("wanted", [Reset(by_duration="P40000D"), Reset(to_datetime="1969-12-31T23:59:59.999")])
def test_to_28_a_time_before_1970_is_not_the_end(answering: Any, wanted: Reset) -> None:
    with pytest.raises(click.UsageError, match="before 1970"):
        plan(answering(ErrorCode.NONE), "g", {("orders", 0): 20}, wanted, (), several=False)
