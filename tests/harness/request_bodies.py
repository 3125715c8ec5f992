"""Minimal requests by API key: those of transactions, and those that change the voters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.harness.transaction_fakes import TRANSACTION_BODIES

_VOTER: Final[dict[str, Any]] = {"cluster_id": None, "voter_id": 1, "voter_directory_id": None}
REQUEST_BODIES: Final[Mapping[int, dict[str, Any]]] = {
    34: {"dirs": []},
    **TRANSACTION_BODIES,
    17: {"mechanism": "PLAIN"},
    36: {"auth_bytes": b""},
    80: _VOTER | {"timeout": 0, "listeners": [], "ack_when_committed": True},
    81: _VOTER,
}
