"""The client at closed listeners."""

from __future__ import annotations

import pytest

from tests.clients.confluent import test_capabilities
from tests.clients.security import Security, told

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]


class TestSecurity(Security):
    client = test_capabilities.TestConfluent.client
    refusals = told(
        "_AUTHENTICATION .*SASL authentication error: {}",
        token=r'_AUTHENTICATION .*\{"status":"invalid_token"\}',
        authority="_SSL .*broker certificate could not be verified",
        broker="_SSL .*broker certificate could not be verified",
        expired="_TRANSPORT .*alert certificate (unknown|expired)",
        strangers="_TRANSPORT .*alert (bad certificate|unknown ca)",
        nobody="_TRANSPORT .*alert (bad certificate|certificate required)",
        grant="TOPIC_AUTHORIZATION_FAILED",
    )
