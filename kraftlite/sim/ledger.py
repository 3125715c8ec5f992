"""The faults of a run as a ledger of faults, in the lines that running nodes' faults have (`obs/faults`). Pure.

What the simulator does and no ledger has a word for, such as `isolate` or a failed directory, stays a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.faults import ASKED, ENDED, LASTING, SEEN

ALL_END: Final = "all faults end"
_DEED: Final = re.compile(r"([a-z-]+) (\d+)(?:>(\d+))?(?: for (\d+) ms)?")
_BOOT: Final = re.compile(r"boot (\d+)")
_WITH_THE_PROCESS: Final = ("kill", "stop")
"""The kinds that end when their node boots."""
_HOW: Final = {"pause": "resume"}
_DOOR: Final = "sim"


@dataclass(slots=True)
class _Open:
    id: str
    kind: str
    node: int
    ends_ms: int | None


def entries(seed: int, injected: Sequence[tuple[int, str]]) -> tuple[list[Recorded], list[tuple[int, str]]]:
    """The deeds of the injector (microseconds, text) that a ledger has words for, by time, and the others as they are."""
    found: list[Recorded] = []
    rest: list[tuple[int, str]] = []
    active: list[_Open] = []
    who = {"who": f"seed {seed}", "door": _DOOR}

    def end(ms: int, how: str, over: Sequence[_Open]) -> None:
        for fault in over:
            active.remove(fault)
            found.append(_event(ms, fault.node, ENDED, id=fault.id, how=_HOW.get(fault.kind, how), **who))

    for number, (at_us, text) in enumerate(injected):
        ms = at_us // 1000
        for fault in sorted(_due(active, ms), key=lambda it: it.ends_ms or 0):
            end(fault.ends_ms or ms, "its time was over", [fault])
        if text == ALL_END:
            end(ms, "heal", list(active))
            rest.append((at_us, text))
        elif (boot := _BOOT.fullmatch(text)) is not None:
            end(ms, "start", [it for it in active if it.kind in _WITH_THE_PROCESS and it.node == int(boot[1])])
        elif (deed := _DEED.fullmatch(text)) is not None and deed[1] in LASTING:
            kind, node, other = deed[1], int(deed[2]), deed[3]
            for_ms = None if deed[4] is None else int(deed[4])
            facts: dict[str, Any] = {"id": f"sim-{number}", "kind": kind, **who}
            facts |= {} if other is None else {"other": int(other)}
            facts |= {} if for_ms is None or kind in _WITH_THE_PROCESS else {"for_ms": for_ms}
            found.append(_event(ms, node, ASKED, **facts))
            found.append(_event(ms, node, SEEN, id=facts["id"]))
            ends_ms = None if for_ms is None or kind in _WITH_THE_PROCESS else ms + for_ms
            active.append(_Open(facts["id"], kind, node, ends_ms))
        else:
            rest.append((at_us, text))
    return sorted(found, key=lambda it: it.ms), rest


def _due(active: Sequence[_Open], ms: int) -> Iterator[_Open]:
    return (it for it in active if it.ends_ms is not None and it.ends_ms <= ms)


def _event(ms: int, node: int, event: str, **facts: Any) -> Recorded:
    return Recorded(ms=ms, node=node, event=event, facts=facts)
