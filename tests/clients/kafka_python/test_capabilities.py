"""kafka-python: the capabilities that every client is put through."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

import pytest

from tests.clients.capabilities import Capabilities
from tests.clients.programs import Client, python_program

pytest.importorskip("kafka")
pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]
LOST = "kafka-python drops a request of a transaction whose coordinator refuses the connection twice"


class TestKafkaPython(Capabilities):
    client = Client(
        name="kafka-python",
        version=lambda: version("kafka-python"),
        prepare=lambda: python_program("kafka_python"),
        timed_out="ProducerFencedError",
        lacks={
            "transactions: brokers are killed": LOST,
            "group: KIP-848": "kafka-python has no consumer protocol",
            **({} if find_spec("snappy") else {"codec snappy": "kafka-python needs python-snappy for this codec"}),
        },
    )
