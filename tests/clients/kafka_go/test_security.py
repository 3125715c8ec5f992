"""kafka-go: what every client is put through at closed listeners, with the newest of the releases of `years`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.clients.security import Security, told
from tests.clients.years.install import client_of
from tests.clients.years.versions import PAST

pytestmark = [pytest.mark.clients, pytest.mark.golang, pytest.mark.slow, pytest.mark.xdist_group("clients")]
NEWEST = client_of([it for it in PAST if it.client == "kafka-go"][-1])


class TestSecurity(Security):
    client = replace(
        NEWEST, past=False, lacks=dict.fromkeys(("login: OAUTHBEARER", "token that ends"), "kafka-go has no OAUTHBEARER")
    )
    refusals = told(
        "SASL_AUTHENTICATION_FAILED",
        token="",
        authority="certificate signed by unknown authority",
        broker="certificate has expired or is not yet valid",
        expired="remote error: tls: (unknown|expired) certificate",
        strangers="remote error: tls: (bad certificate|unknown certificate authority)",
        nobody="remote error: tls: (bad certificate|certificate required)",
        grant="TOPIC_AUTHORIZATION_FAILED",
    )
