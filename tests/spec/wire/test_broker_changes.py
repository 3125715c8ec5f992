"""Values of a broker that do not go together are refused by the broker, which alone knows its file."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode as E
from kraftlite.model.messages import controller as c
from kraftlite.model.messages import methods as m
from tests.harness.wire_fakes import Harness

SET, DELETE = 0, 1
BUFFER, LEAST, MOST, THREADS = (
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.threads",
)
MIB = 1 << 20


def takes_all(request: Any) -> c.AlterConfigsResponse:
    return c.AlterConfigsResponse(
        resources=tuple(
            c.AlterConfigsResult(resource_type=it.resource_type, resource_name=it.resource_name, error=E.NONE, message=None)
            for it in request.resources
        )
    )


async def alter(h: Harness, name: str, *changes: tuple[str, int, str | None], legacy: bool = False) -> tuple[E, str | None]:
    """The answer to a change of one broker's configs, by a controller that takes everything."""
    h.controller.answers[m.INCREMENTAL_ALTER_CONFIGS] = h.controller.answers[m.ALTER_CONFIGS] = takes_all
    configs: list[dict[str, Any]] = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
    if legacy:
        configs = [{"name": key, "value": value} for key, _op, value in changes]
    values = {"resources": [{"resource_type": 4, "resource_name": name, "configs": configs}], "validate_only": False}
    (answer,) = (await (await h.client()).call(*((33, 2) if legacy else (44, 1)), values)).responses
    return E(answer.error_code.value), answer.error_message


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", ["", "1"])
async def test_more_threads_than_the_files_key_map_has_room_for_are_refused(name: str, legacy: bool) -> None:
    async with Harness(config={BUFFER: str(3 * MIB), THREADS: "2"}) as h:
        assert await alter(h, name, (THREADS, SET, "3"), legacy=legacy) == (E.NONE, None)
        error, told = await alter(h, name, (THREADS, SET, "4"), legacy=legacy)
        assert error is E.INVALID_REQUEST
        assert told == f"{BUFFER}={3 * MIB} must be at least {4 * MIB}, 1 MiB for each of log.cleaner.threads=4"
        assert len(h.controller.calls) == 1, "the controller was not asked for the second"
        assert await alter(h, name, (THREADS, SET, "4"), (BUFFER, SET, str(4 * MIB)), legacy=legacy) == (E.NONE, None)


@pytest.mark.parametrize(("threads", "taken"), [("3", False), ("4", True), ("16", True), ("17", False)])
async def test_threads_are_at_most_halved_or_doubled_at_a_time(threads: str, taken: bool) -> None:
    async with Harness(configs={(4, "1"): {THREADS: "8"}}) as h:
        error, told = await alter(h, "1", (THREADS, SET, threads))
        assert error is (E.NONE if taken else E.INVALID_REQUEST)
        assert taken or told == f"log.cleaner.threads={threads}: one change may at most halve or double the 8 of now"


async def test_taking_a_value_back_is_a_change_too() -> None:
    async with Harness(configs={(4, "1"): {THREADS: "8"}, (4, ""): {LEAST: "5", MOST: "10"}}, config={LEAST: "20"}) as h:
        assert (await alter(h, "1", (THREADS, DELETE, None)))[0] is E.INVALID_REQUEST, "from 8 to 1"
        error, told = await alter(h, "", (LEAST, DELETE, None))
        assert (error, told) == (E.INVALID_REQUEST, f"{LEAST}=20 must not exceed {MOST}=10"), "the file's value is back"


async def test_what_was_said_of_this_broker_outweighs_the_default_of_all() -> None:
    async with Harness(configs={(4, "1"): {LEAST: "5"}, (4, ""): {MOST: "10"}}) as h:
        assert await alter(h, "", (LEAST, SET, "20")) == (E.NONE, None)
        assert (await alter(h, "1", (LEAST, SET, "20")))[0] is E.INVALID_REQUEST


async def test_single_values_and_other_keys_are_the_controllers_matter() -> None:
    async with Harness(configs={(4, "1"): {THREADS: "500"}}) as h:  # stored before it was looked at
        assert await alter(h, "1", (THREADS, SET, "many")) == (E.NONE, None)
        assert await alter(h, "1", ("log.retention.ms", SET, "5")) == (E.NONE, None)
        assert await alter(h, "1", ("no.such.key", SET, "5")) == (E.NONE, None)
        assert len(h.controller.calls) == 3


async def test_the_interval_of_assignments_stays_within_the_files_bounds() -> None:
    key, most = "group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"
    async with Harness(config={most: "5000"}) as h:
        assert await alter(h, "", (key, SET, "5000")) == (E.NONE, None)
        assert await alter(h, "1", (key, SET, "5001")) == (E.INVALID_REQUEST, f"{key} must be less than or equal to {most}")


@pytest.mark.parametrize("key", ["listeners", "cordoned.log.dirs", "ssl.keystore.location", "log.dirs"])
async def test_a_key_that_cannot_be_set_for_all_brokers_may_be_taken_back_from_there(key: str) -> None:
    async with Harness() as h:
        assert await alter(h, "", (key, DELETE, None)) == (E.NONE, None)
