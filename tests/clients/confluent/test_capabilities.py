"""confluent-kafka (librdkafka): the capabilities that every client is put through."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.clients.capabilities import Capabilities
from tests.clients.programs import Client, python_program

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


class TestConfluent(Capabilities):
    client = Client(
        name="confluent-kafka",
        version=lambda: version("confluent-kafka"),
        prepare=lambda: python_program("confluent"),
        timed_out="_FENCED",
    )
