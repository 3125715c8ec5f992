"""Faults between a node and the clients of its Kafka listeners: bytes that are held, connections that are refused, and APIs that
answer with an error, or late."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from kraftlite.faults.active import Active, Undo
from kraftlite.model.errors import ErrorCode, error_code
from kraftlite.model.faults import Injection, UnknownFault
from kraftlite.runtime.ports import Clock

if TYPE_CHECKING:
    from kraftlite.wire.apis.call import Api, Call

_MAX_WAITING: Final = 10_000
"""Requests that wait at a time because an API is slow; those beyond them are not slowed."""


class Doors(Protocol):
    """The listeners of a node, as far as faults need them."""

    def hold_clients(self, *, requests: bool, responses: bool) -> None: ...

    def refuse_clients(self, refused: bool) -> None: ...

    def intercept_apis(self, handle_of: Callable[[Api], Callable[[Call], None]] | None) -> None: ...


class ClientLinks:
    """Holds bytes as a network that is cut does, or refuses. Several faults at a time add up."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._active: list[Active] = []

    def begin(self, active: Active) -> Undo:
        self._active.append(active)
        active.hit()
        self._apply()

        def undo() -> None:
            self._active.remove(active)
            self._apply()

        return undo

    def _apply(self) -> None:
        cuts = [it.fault for it in self._active if it.fault.kind != "refuse"]
        self._doors.hold_clients(requests=any(it.incoming for it in cuts), responses=any(it.outgoing for it in cuts))
        self._doors.refuse_clients(len(cuts) < len(self._active))


class ApiFaults:
    """Answers for APIs. Of several faults of one API the first that is not used up decides."""

    def __init__(self, doors: Doors, clock: Clock) -> None:
        self._doors = doors
        self._clock = clock
        self._active: list[Active] = []
        self._waiting = 0

    def begin(self, active: Active) -> Undo:
        check_api(active.fault)
        self._active.append(active)
        self._doors.intercept_apis(self._handle_of)

        def undo() -> None:
            self._active.remove(active)
            self._doors.intercept_apis(self._handle_of if self._active else None)

        return undo

    def _handle_of(self, api: Api) -> Callable[[Call], None]:
        if not any(_concerns(it, api.name) for it in self._active):
            return api.handle

        def handle(call: Call) -> None:
            active = next((it for it in self._active if _concerns(it, api.name) and not it.spent), None)
            if active is None:
                api.handle(call)
                return
            if active.fault.error:
                self._refuse(active, call)
            else:
                self._slow(active, api, call)

        return handle

    def _refuse(self, active: Active, call: Call) -> None:
        from kraftlite.wire.apis.refusals import answer, is_unanswered

        code = error_code(active.fault.error)
        if is_unanswered(call):
            active.hit()
            call.slot.fail(f"an injected fault: {call.api.name} answers {code.name}, and this request has no answer")
            return
        body = answer(call.api.name, call.api.key, call.version, call.frame, call.pos, code)
        active.hit()
        call.frame = memoryview(b"")
        if body is None:
            call.slot.fail(f"an injected fault: {call.api.name} v{call.version} has no place for {code.name}")
        else:
            self._after(active, call.guarded(lambda: call.send_body(body)))

    def _slow(self, active: Active, api: Api, call: Call) -> None:
        """The request waits where it arrived, and what comes behind it on its connection, too."""
        active.hit()
        if self._waiting >= _MAX_WAITING:
            api.handle(call)
            return
        call.connection.lease_frame()

        def go_on() -> None:
            call.connection.return_frame()
            if not call.connection.lost:
                api.handle(call)

        self._after(active, call.guarded(go_on))

    def _after(self, active: Active, work: Callable[[], None]) -> None:
        if not active.fault.amount or self._waiting >= _MAX_WAITING:
            work()
            return

        def run() -> None:
            self._waiting -= 1
            work()

        self._waiting += 1
        self._clock.call_later(max(1, active.fault.amount // 1000), run)


def _concerns(active: Active, name: str) -> bool:
    from kraftlite.wire.apis.refusals import NEVER

    return active.fault.api == name or (not active.fault.api and name not in NEVER)


def check_api(fault: Injection) -> None:
    """Raises UnknownFault for an API that clients cannot ask for, or whose answers have no place for a code."""
    from kraftlite.wire.apis.refusals import failing_apis, offered_apis

    if fault.api and fault.api not in offered_apis():
        raise UnknownFault(f"API {fault.api!r}: allowed are {', '.join(sorted(offered_apis()))}")
    if fault.error:
        if error_code(fault.error) is ErrorCode.UNKNOWN_SERVER_ERROR and fault.error != ErrorCode.UNKNOWN_SERVER_ERROR.value:
            raise UnknownFault(f"error code {fault.error}: allowed are the codes of Kafka's protocol")
        if fault.api not in failing_apis():
            raise UnknownFault(f"{fault.api} has no place for an error; allowed are {', '.join(sorted(failing_apis()))}")
