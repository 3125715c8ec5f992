"""What somebody may ask of a listener who has not logged in, over real sockets. SE-10."""

from __future__ import annotations

import asyncio

import pytest

from kraftlite.model.errors import ErrorCode
from tests.harness.wire_fakes import until
from tests.spec.wire.test_sasl import Secured


async def test_se_10_a_long_request_in_the_middle_is_not_read() -> None:
    """To repeat all that it names takes the loop for a second for each MiB, for somebody who has proved nothing."""
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    asked = {"topics": [topic], "timeout": 1_000, "validate_only": False}
    async with Secured() as h:
        client = await h.client()
        await client.call(17, 1, {"mechanism": "PLAIN"})
        answer = await h.delayed(client, 19, 2, asked)
        assert [it.error_code for it in answer.topics] == [ErrorCode.ILLEGAL_SASL_STATE]
        long = await h.client()
        await long.call(17, 1, {"mechanism": "PLAIN"})
        long.send(19, 2, {**asked, "topics": [topic] * 1_000})
        await until(lambda: h.gate.counts.failed == 2)
        h.clock.advance(100)
        with pytest.raises(asyncio.IncompleteReadError):
            await long.read_frame()
