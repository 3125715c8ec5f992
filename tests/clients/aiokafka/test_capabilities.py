"""aiokafka: the capabilities that every client is put through."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.clients.capabilities import Capabilities
from tests.clients.programs import Client, python_program

pytest.importorskip("aiokafka")
pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


class TestAioKafka(Capabilities):
    client = Client(
        name="aiokafka",
        version=lambda: version("aiokafka"),
        prepare=lambda: python_program("aiokafka"),
        timed_out="ProducerFenced",
        lacks={
            "group: cooperative": "aiokafka has no incremental rebalances",
            "group: KIP-848": "aiokafka has no consumer protocol",
            "admin: delete groups": "aiokafka has no call for it",
        },
    )
