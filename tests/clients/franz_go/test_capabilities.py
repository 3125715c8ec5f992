"""franz-go: the capabilities that every client is put through."""

from __future__ import annotations

import pytest

from tests.clients.capabilities import Capabilities
from tests.clients.programs import FOLDER, Client, Ready, go_program, go_version

pytestmark = [pytest.mark.clients, pytest.mark.golang, pytest.mark.slow, pytest.mark.xdist_group("clients")]
HERE = FOLDER / "franz_go"


class TestFranzGo(Capabilities):
    client = Client(
        name="franz-go",
        version=lambda: go_version(HERE, "twmb/franz-go"),
        prepare=lambda: go_program(HERE),
        timed_out="INVALID_TXN_STATE",
    )

    def test_guess(self, ready: Ready) -> None:
        """`kcl misc probe-version`: from the newest release back it takes the first whose requests are all there, in these
        versions. Share groups are of 4.0, so nothing newer is left; what kraftlite does offer has the versions of 4.3."""
        (found,) = ready.admin({"do": "guess_version"})
        assert set(found["missing"]) <= NOT_OFFERED, "DIFFERENCES.md lists what is not offered"
        assert found["without"] == "v4.3"
        assert found["guess"] == "at least v3.9"


NOT_OFFERED = {
    *(71, 72),  # telemetry: where the node has no metrics page
    *(76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92),  # share groups
    *(80, 81),  # voters that come and go: a controller has them
    *(88, 89),  # streams groups
}
"""API keys of Kafka 4.3 that a broker of kraftlite does not know."""
