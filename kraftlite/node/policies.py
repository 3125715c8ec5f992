"""Policies of a controller: loaded from `module:name`, and called on a thread of their own (KIP-108, KIP-133; CM-65, CM-66)."""

from __future__ import annotations

import asyncio
import importlib
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kraftlite.config.server import ServerConfig
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.policy import PolicyKind, PolicyQuestion
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace.controller import OperationFailed

Policy: TypeAlias = Callable[[Any], object]

MAX_CALLS: Final = 4
"""Requests whose policies are being asked at once. A policy that does not come back keeps its place."""
_MAX_REASON: Final = 1_000


def load_policies(config: ServerConfig, ports: Ports) -> NodePolicies | None:
    """The policies that the configuration names; None when it names none. Raises ValueError for one that cannot be used."""
    found: dict[PolicyKind, Policy] = {}
    texts = {
        PolicyKind.CREATE_TOPIC: config.values.get("create.topic.policy.class.name"),
        PolicyKind.ALTER_CONFIG: config.values.get("alter.config.policy.class.name"),
    }
    for kind, text in texts.items():
        if text:
            found[kind] = _load(kind, text.strip(), config.explicit)
    return NodePolicies(found, texts, ports) if found else None


def _load(kind: PolicyKind, text: str, values: Mapping[str, str]) -> Policy:
    module_name, colon, name = text.partition(":")
    if not colon or not name or not module_name:
        raise ValueError(
            f"{kind}={text}: a policy is a Python entry point, module:name; Java classes cannot be loaded. Remove it, or name one"
        )
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
        if isinstance(found, type):
            found = found()
            if hasattr(found, "configure"):
                found.configure(dict(values))
    except Exception as error:
        raise ValueError(f"{kind}={text}: the policy cannot be loaded: {type(error).__name__}: {error}") from error
    policy = getattr(found, "validate", found)
    if not callable(policy):
        raise ValueError(f"{kind}={text}: {name} is neither callable nor has it a method validate")
    return policy  # type: ignore[no-any-return]


class NodePolicies:
    """Calls policies off the loop, in the order of the questions of a request; a few requests at once."""

    def __init__(self, policies: Mapping[PolicyKind, Policy], texts: Mapping[PolicyKind, str | None], ports: Ports) -> None:
        self._policies = policies
        self._texts = texts
        self._ports = ports
        self._calls = 0

    def has(self, kind: PolicyKind) -> bool:
        return kind in self._policies

    async def judge(self, questions: Sequence[PolicyQuestion], timeout_ms: int) -> list[ApiError | None]:
        if self._calls >= MAX_CALLS:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{self._calls} calls of policies have not come back; try again later.")
        answer: asyncio.Future[list[ApiError | None]] = asyncio.get_running_loop().create_future()

        def ended(verdicts: list[ApiError | None]) -> None:
            self._calls -= 1
            if not answer.done():
                answer.set_result(verdicts)

        def run() -> Callable[[], None]:
            verdicts = [self._verdict(question) for question in questions]
            return lambda: ended(verdicts)

        def expired() -> None:
            if not answer.done():
                words = f"{names} did not answer within {timeout_ms} ms."
                answer.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT, words))

        names = ", ".join(sorted({f"The policy {self._texts[it.kind]}" for it in questions}))
        self._calls += 1
        (self._ports.aside or _on_a_thread)(run)
        timer = self._ports.clock.call_later(timeout_ms, expired)
        try:
            verdicts = await answer
        finally:
            timer.cancel()
        for verdict in verdicts:
            if verdict is not None and verdict.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                told = OperationFailed(
                    operation="policy", error=verdict.code.name, message=verdict.message, trace=_stack(verdict)
                )
                self._ports.tracer.emit(told)
        return verdicts

    def _verdict(self, question: PolicyQuestion) -> ApiError | None:
        text = self._texts[question.kind]
        try:
            reason = self._policies[question.kind](question)
        except Exception as error:  # noqa: BLE001 - foreign code: its error is the answer to the request (CM-66)
            failed = ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"The policy {text} failed: {type(error).__name__}: {error}"[:_MAX_REASON]
            )
            failed.__cause__ = error
            return failed
        if reason is None:
            return None
        if isinstance(reason, str):
            return ApiError(ErrorCode.POLICY_VIOLATION, reason[:_MAX_REASON])
        words = f"The policy {text} returned {type(reason).__name__}; allowed are None and the reason of a refusal as text."
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, words)


def _on_a_thread(work: Callable[[], Callable[[], None]]) -> None:
    """A daemon: a policy that never comes back must not keep the node from stopping."""
    loop = asyncio.get_running_loop()

    def run() -> None:
        finish = work()
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:
            return  # the node has stopped meanwhile

    threading.Thread(target=run, name="policy", daemon=True).start()


def _stack(verdict: ApiError) -> str:
    return "".join(traceback.format_exception(verdict.__cause__)) if verdict.__cause__ is not None else ""
