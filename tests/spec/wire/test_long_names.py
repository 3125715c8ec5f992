"""Names as long as a string of the protocol can be, and what is said of them."""

from __future__ import annotations

import pytest

from kraftlite.model.errors import ErrorCode as E
from kraftlite.model.messages import controller as c
from kraftlite.model.messages import methods as m
from tests.harness.wire_fakes import Harness


@pytest.mark.parametrize("kind", [2, 4, 8])
@pytest.mark.parametrize("key, version", [(44, 0), (44, 1), (33, 0), (33, 2), (32, 1), (32, 4)])
async def test_a_name_as_long_as_a_string_can_be_is_refused_in_words(key: int, version: int, kind: int) -> None:
    """The text that quotes it must fit into a string of the protocol, too."""
    name = "x" * 32_767
    entry: dict[str, object] = {"resource_type": kind, "resource_name": name}
    if key == 32:
        values: dict[str, object] = {"resources": [{**entry, "configuration_keys": None}], "include_synonyms": False}
    else:
        change = {"name": name, "config_operation": 0, "value": "1"}
        values = {"resources": [{**entry, "configs": [change]}], "validate_only": False}
    async with Harness() as h:
        refused = c.AlterConfigsResult(
            resource_type=kind, resource_name=name, error=E.INVALID_REQUEST, message=f"What is {name}?"
        )
        for method in (m.INCREMENTAL_ALTER_CONFIGS, m.ALTER_CONFIGS):
            h.controller.answers[method] = lambda _: c.AlterConfigsResponse(resources=(refused,))
        answer = await (await h.client()).call(key, version, values)
        (one,) = answer.results if key == 32 else answer.responses
        assert one.error_code.value != 0 and one.resource_name == name
        assert len(one.error_message) < 5_000, "enough to know what is meant"


async def test_cp_03_of_a_long_software_name_the_beginning_is_kept() -> None:
    """Whoever has not logged in yet may send it."""
    async with Harness() as h:
        client = await h.client()
        answer = await client.call(18, 3, {"client_software_name": "a" * 32_000, "client_software_version": "1" * 32_000})
        assert answer.error_code == 0
        (connection,) = h.listener.connections
        assert connection.software == ("a" * 256, "1" * 256)
