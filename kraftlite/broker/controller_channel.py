"""The way from a broker to the active controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint
from kraftlite.model.method import Method, Req, Res
from kraftlite.raft.client import RaftClient
from kraftlite.runtime.ports import Ports, TransportError

RETRY_BACKOFF_MS: Final = 20
MIN_ATTEMPT_MS: Final = 10
LEADER_CHECK_MS: Final = 20
"""The time after which a call under way notices that another node leads. Calls take a few milliseconds: few live to see one
check."""


class RaftControllerChannel:
    """A `ControllerChannel` that asks the metadata quorum who leads.

    Only NOT_CONTROLLER and failures to reach the controller are retried, until the caller's time is up. An attempt is given up
    when the quorum has another leader meanwhile, so that a paused controller does not hold a call for its whole time; it may
    still carry the operation out (at least once). `attempt_timeout_ms` bounds one attempt. Raises ApiError; REQUEST_TIMED_OUT
    when no active controller answered in time. Source: BL-04, CP-57.
    """

    def __init__(self, ports: Ports, raft: RaftClient, *, attempt_timeout_ms: int | None = None) -> None:
        self._ports = ports
        self._raft = raft
        self._attempt_timeout_ms = attempt_timeout_ms

    async def call(self, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
        clock = self._ports.clock
        deadline_ms = clock.now_ms() + timeout_ms
        reason = "no controller is known"
        while True:
            remaining = deadline_ms - clock.now_ms()
            endpoint = self._raft.leader_endpoint()
            if endpoint is not None and remaining > 0:
                limit = remaining if self._attempt_timeout_ms is None else min(remaining, self._attempt_timeout_ms)
                outcome = await self._attempt(endpoint, method, request, max(limit, MIN_ATTEMPT_MS))
                if not isinstance(outcome, _Failed):
                    return outcome
                reason = outcome.reason
            remaining = deadline_ms - clock.now_ms()
            if remaining <= 0:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT, f"{method}: no active controller answered within {timeout_ms} ms: {reason}"
                )
            await clock.sleep(min(RETRY_BACKOFF_MS, remaining))

    async def _attempt(self, endpoint: Endpoint, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res | _Failed:
        """The response, or `_Failed` when it is worth another attempt. Raises ApiError for a refusal."""
        call = asyncio.ensure_future(self._ports.transport.call(endpoint, method, request, timeout_ms))
        moved = asyncio.get_running_loop().create_future()
        watch = _LeaderWatch(self._ports, self._raft, endpoint, lambda: None if moved.done() else moved.set_result(None))
        try:
            await asyncio.wait((call, moved), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                return _Failed(f"{endpoint} no longer leads the quorum")
            return call.result()
        except TransportError as error:
            return _Failed(f"{endpoint}: {error}")
        except ApiError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                return _Failed(f"{endpoint} is not the active controller")
            raise
        finally:
            watch.stop()
            if not call.done():
                call.cancel()
                await asyncio.wait((call,))
            if not call.cancelled():
                call.exception()  # taken note of: a call that is given up may still end with an error of its own


class _Failed:
    def __init__(self, reason: str) -> None:
        self.reason = reason


class _LeaderWatch:
    """Calls back once when the quorum's known leader is no longer at `endpoint`."""

    def __init__(self, ports: Ports, raft: RaftClient, endpoint: Endpoint, on_moved: Callable[[], object]) -> None:
        self._ports, self._raft, self._endpoint, self._on_moved = ports, raft, endpoint, on_moved
        self._timer = ports.clock.call_later(LEADER_CHECK_MS, self._check)

    def _check(self) -> None:
        leader = self._raft.leader_endpoint()
        if leader is not None and leader != self._endpoint:
            self._on_moved()
            return
        self._timer = self._ports.clock.call_later(LEADER_CHECK_MS, self._check)

    def stop(self) -> None:
        self._timer.cancel()
