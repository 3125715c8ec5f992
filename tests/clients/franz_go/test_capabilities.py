"""franz-go: the capabilities that every client is put through."""

from __future__ import annotations

import pytest

from tests.clients.capabilities import Capabilities
from tests.clients.programs import FOLDER, Client, go_program, go_version

pytestmark = [pytest.mark.clients, pytest.mark.golang, pytest.mark.slow, pytest.mark.xdist_group("clients")]
HERE = FOLDER / "franz_go"


class TestFranzGo(Capabilities):
    client = Client(
        name="franz-go",
        version=lambda: go_version(HERE, "twmb/franz-go"),
        prepare=lambda: go_program(HERE),
    )
