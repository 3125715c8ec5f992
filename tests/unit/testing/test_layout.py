"""The configuration of an embedded cluster's nodes."""

from __future__ import annotations

import pytest

from kraftlite.testing.layout import plan, server_config

SESSION, LAG = "broker.session.timeout.ms", "replica.lag.time.max.ms"


@pytest.mark.parametrize(
    ("config", "lag_ms"),
    [
        ({}, 300),
        ({SESSION: "6000"}, 6000),
        ({SESSION: " 6000 "}, 6000),
        ({SESSION: "200"}, 300),
        ({SESSION: "6000", LAG: "400"}, 400),
        ({LAG: "400"}, 400),
    ],
)
def test_the_lag_limit_is_raised_with_the_session_timeout(config: dict[str, str], lag_ms: int) -> None:
    nodes = plan(1, 1, combined=True)
    assert server_config(nodes[0], nodes, 9092, config).get_int(LAG) == lag_ms


def test_a_session_timeout_that_is_no_number_is_refused_by_its_own_name() -> None:
    nodes = plan(1, 1, combined=True)
    with pytest.raises(ValueError, match=r"^broker\.session\.timeout\.ms=soon: "):
        server_config(nodes[0], nodes, 9092, {SESSION: "soon"})
