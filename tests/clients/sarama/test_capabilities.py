"""Sarama: the capabilities that every client is put through."""

from __future__ import annotations

import pytest

from tests.clients.capabilities import Capabilities
from tests.clients.programs import FOLDER, Client, go_program, go_version

pytestmark = [pytest.mark.clients, pytest.mark.golang, pytest.mark.slow, pytest.mark.xdist_group("clients")]
HERE = FOLDER / "sarama"


class TestSarama(Capabilities):
    client = Client(
        name="Sarama",
        version=lambda: go_version(HERE, "IBM/sarama"),
        prepare=lambda: go_program(HERE),
        timed_out="PRODUCER_FENCED",
        lacks={"group: KIP-848": "Sarama has no consumer protocol"},
    )
