"""Requests of administrators that go to the controllers directly, as when no broker is alive.

Source: KIP-919; CB-02, CB-04.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, ClassVar, Final

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.connection import code_of
from kraftlite.client.errors import RequestRefused
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_CONFIGS

_OF_ANY: Final = (API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_CONFIGS)
"""Requests that every controller answers; the others are for the active one."""
_MOVED: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
CONTROLLER_REQUESTS: Final = frozenset(
    {17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 60, 64, 80, 81}
)
"""The requests that a controller knows (CB-01)."""


class ControllersClient(ClusterClient):
    """A `ClusterClient` whose nodes are the controllers. The settings' addresses are those of controllers.

    The active one is looked up, and again when it is another: while an election runs a request is repeated as long as the
    settings allow. A request that only brokers answer is refused with UNSUPPORTED_ENDPOINT_TYPE.
    """

    ENDPOINT_TYPE: ClassVar = 2

    def call(
        self,
        api_key: int,
        version: int,
        values: Mapping[str, object],
        *,
        broker: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        if api_key not in CONTROLLER_REQUESTS:
            raise RequestRefused(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                "This Admin API is not yet supported when communicating directly with the controller quorum.",
            )
        if api_key in _OF_ANY and (broker is None or broker in self.brokers()):
            return super().call(api_key, version, values, broker=broker, timeout_ms=timeout_ms)
        budget = self._budget("", timeout_ms)
        while True:
            active = self.brokers().get(self.controller_id)
            reason = "no controller is active"
            if active is not None:
                among = [(active.host, active.port)]
                found = self._round(api_key, values, partial(budget.deadline, math.inf), version=version, among=among)
                if found.answer is not None and not _moved(found.answer):
                    return found.answer
                reason = f"{active.address} is not the active controller" if found.answer is not None else found.reasons[0]
            self._nodes = None
            budget.pause(reason)


def _moved(entity: Any) -> bool:
    """Return whether an answer, or anything in it, says that another controller is active."""
    if hasattr(entity, "error_code") and code_of(entity) in _MOVED:
        return True
    lists = (getattr(entity, field.name) for field in fields(entity))
    return any(_moved(one) for found in lists if isinstance(found, tuple) for one in found[:1] if is_dataclass(one))
