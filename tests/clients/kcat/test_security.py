"""The client at closed listeners."""

from __future__ import annotations

import pytest

from tests.clients.kcat import test_capabilities
from tests.clients.security import Security, told

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


class TestSecurity(Security):
    """Of a refused token it has nothing to tell, as it makes none that is over. When a record is refused it ends."""

    client = test_capabilities.TestKcat.client
    granted_by = "PLAIN"
    goes_on = False
    refusals = told(
        "Authentication failure: .*SASL authentication error: {}",
        token="Authentication failure",
        authority="SSL .*broker certificate could not be verified",
        broker="SSL .*broker certificate could not be verified",
        expired="alert certificate (unknown|expired)",
        strangers="alert (certificate unknown|unknown ca)",
        nobody="alert (bad certificate|certificate required)",
        grant="Topic authorization failed",
    )
