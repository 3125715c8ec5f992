"""The faults of the ledger as a test: what was done to this cluster is done to an embedded one, at the same pace. Pure.

The test is a beginning: what a client of yours has to get through these faults is for you to add, where it says so. A fault for
which embedded clusters have no call is a comment that says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kraftlite.model.faults import CLIENTS
from kraftlite.obs.faults import Fault

SPEC: Final = re.compile(
    r"(?:(?P<api>[A-Za-z]+) )?(?:(?P<error>[A-Z_]+) )?(?:(?P<ms>\d[\d.e+]*) ms later ?)?(?:(?P<count>\d+) times)?"
)
_ENDS: Final = {"kill": "restart", "stop": "restart", "pause": "resume"}
"""The calls that end what has no length of its own."""
_HEAD: Final = '''\
"""The faults that were caused to a cluster, again, on an embedded one: pip install kraftlite, then pytest THIS-FILE."""

import time

from kraftlite.testing import CLIENTS, SOMEBODY, SyncCluster  # noqa: F401


def test_the_same_faults():
    with SyncCluster(controllers={controllers}, brokers={brokers}) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor={factor})
        began = time.monotonic()

        def at(seconds):
            time.sleep(max(0.0, began + seconds - time.monotonic()))

        # Here your client begins: cluster.bootstrap_servers
'''
_TAIL: Final = """\
        cluster.heal()
        for partition in range(3):
            cluster.wait_for(topic="orders", partition=partition, leader=SOMEBODY)
        # And here you look at what it has, and has not.
"""


@dataclass(frozen=True, slots=True)
class _Step:
    ms: int
    text: str


def pytest_lines(faults: Iterable[Fault], since_ms: int, *, controllers: int, brokers: int) -> str:
    """A test file with the faults that were asked for since then, by time, the first one at 0 s."""
    chosen = [fault for fault in faults if fault.failed is None and fault.asked_ms >= since_ms]
    first_ms = min((fault.asked_ms for fault in chosen), default=0)
    steps: list[_Step] = []
    for fault in chosen:
        steps += _steps(fault, chosen, first_ms)
    steps.sort(key=lambda step: step.ms)
    head = _HEAD.format(controllers=controllers, brokers=brokers, factor=min(3, brokers))
    return head + "".join(f"        {step.text}\n" for step in steps) + _TAIL


def _steps(fault: Fault, all_of: Sequence[Fault], first_ms: int) -> Iterable[_Step]:
    begin_ms = fault.asked_ms - first_ms
    call = _call(fault)
    by = _plain(str(fault.by))
    if call is None:
        yield _Step(begin_ms, f"# {begin_ms / 1000:.3f} s: {_plain(fault.about)} by {by}: there is no call for it")
        return
    yield _Step(begin_ms, f"at({begin_ms / 1000:.3f}); cluster.{call}  # {by}")
    end = _ENDS.get(fault.kind)
    if end is not None and fault.ended_ms is not None and not _ended_by_another(fault, all_of):
        end_ms = fault.ended_ms - first_ms
        yield _Step(end_ms, f"at({end_ms / 1000:.3f}); cluster.{end}({fault.node})  # {_plain(fault.ended_how or 'ended')}")


def _ended_by_another(fault: Fault, all_of: Sequence[Fault]) -> bool:
    """Return whether its end is in the ledger as an act of its own, such as a restart."""
    until_ms = fault.ended_ms or 0
    return any(
        it.kind in ("resume", "restart", "start") and it.node == fault.node and fault.asked_ms <= it.asked_ms <= until_ms
        for it in all_of
    )


def _plain(text: str) -> str:
    """Text of somebody else in a comment of one line."""
    return "".join(it if it.isprintable() else "?" for it in text)


def _call(fault: Fault) -> str | None:
    """The call of `kraftlite.testing` that does it; None: there is none."""
    node, ends = fault.node, f"{fault.node}, {'CLIENTS' if fault.other == CLIENTS else fault.other}"
    for_ms = _for_ms(fault)
    lasts = "" if for_ms is None else f", for_s={for_ms / 1000:g}"
    match fault.kind:
        case "kill" | "pause" | "resume" | "stop" | "restart":
            return f"{fault.kind}({node})"
        case "start":
            return f"restart({node})"
        case "cut" | "refuse" if fault.other is not None:
            return f"{fault.kind}({ends}{lasts})"
        case "cut-one-way" if fault.other is not None and fault.other != CLIENTS:
            return f"cut({ends}, one_way=True{lasts})"
        case "slow" if fault.other is not None:
            return f"delay({ends}, {max(1, fault.amount // 1000)}{lasts})"
        case "lossy" if fault.other is not None:
            return f"lose({ends}, {max(1, fault.amount) / 1_000_000:g}{lasts})"
        case "disk-slow":
            return f"slow_disk({node}, {max(1, fault.amount // 1000)}{lasts})"
        case "disk-stall":
            return f"stall_disk({node}{lasts})"
        case "disk-full":
            return f"fill_disk({node}{lasts})"
        case "wall-jump":
            return f"jump_clock({node}, {fault.amount / 1000:g}{lasts})"
        case "api-error" | "api-slow":
            return _api_call(fault, lasts)
        case _:
            return None


def _api_call(fault: Fault, lasts: str) -> str | None:
    found = SPEC.fullmatch(fault.what)
    if found is None:
        return None
    api, error, count = found["api"] or "", found["error"], int(found["count"] or 0)
    ms = round(float(found["ms"] or 0))
    counted = f", count={count}" if count else ""
    if fault.kind == "api-slow":
        return f"slow_api({max(1, ms)}{f', api={api!r}' if api else ''}{counted}, nodes=[{fault.node}]{lasts})"
    if not api or error is None:
        return None
    return f"fail_api({api!r}, error={error!r}{counted}{f', delay_ms={ms}' if ms else ''}, nodes=[{fault.node}]{lasts})"


def _for_ms(fault: Fault) -> int | None:
    """Return how long it lasted, or was asked to last while nobody says that it ended."""
    if fault.ended_ms is not None:
        return max(1, fault.ended_ms - fault.asked_ms)
    return fault.for_ms
