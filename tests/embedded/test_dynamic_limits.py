"""Limits of connections that change while brokers run, as clients meet them (KIP-226, KIP-402)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kraftlite.protocol.kio_codec import build_entity
from kraftlite.testing import SyncCluster
from tests.clients.raw import Closed, Connection

# isort: split
from kio.index import load_request_schema

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]


def _limit(connection: Connection, value: str | None) -> None:
    config = {"name": "max.connections", "config_operation": 1 if value is None else 0, "value": value}
    resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
    request = build_entity(load_request_schema(44, 1), {"resources": [resource], "validate_only": False})
    (found,) = connection.ask(request).responses
    assert int(found.error_code) == 0, found


def _served(address: str) -> bool:
    """Whether somebody else is let in, and not left waiting."""
    other = Connection(address, timeout_s=2)
    try:
        return bool(other.offered())
    except (Closed, OSError):
        return False
    finally:
        other.close()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_cb_05_a_smaller_limit_lets_newcomers_wait_until_it_is_removed() -> None:
    with SyncCluster(controllers=1, brokers=1) as cluster:
        address = cluster.bootstrap_servers
        first = Connection(address, timeout_s=40)
        assert _served(address)
        _limit(first, "1")
        _until(lambda: not _served(address))
        _limit(first, None)
        _until(lambda: _served(address))
        first.close()
