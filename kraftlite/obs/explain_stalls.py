"""Finds when a partition's high watermark stood still, in what its leaders recorded of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraftlite.obs.explain_events import Recorded


def standstills(events: Iterable[Recorded]) -> Iterator[tuple[Recorded | None, Recorded | None]]:
    """Pairs of events of one partition: the HW stands still (None: only its end is recorded), and what ended that: it moved on,
    or another leader came (None: neither is recorded)."""
    told: dict[int, Recorded] = {}
    starts: list[Recorded] = []
    over: set[int] = set()
    for event in events:
        if event.event == "partition.leader_started":
            for stalled in told.values():  # whoever led before does no longer
                yield stalled, event
            over |= told.keys()
            over.discard(event.node)
            told.clear()
            starts.append(event)
        elif event.event in ("partition.hw_stalled", "partition.hw_resumed") and _deposed(starts, event):
            # It had not heard yet of the leader that came after it: from then on its HW was not the partition's.
            ended = _successor(starts, event)
            if ended is not None and event.node not in over:
                yield event, ended
            over.add(event.node)
        elif event.event == "partition.hw_stalled":
            told[event.node] = event
        elif event.event == "partition.hw_resumed":
            yield told.pop(event.node, None), event
    for stalled in told.values():
        yield stalled, None


def _own_epoch(starts: list[Recorded], node: int) -> int | None:
    return next((int(start.get("leader_epoch")) for start in reversed(starts) if start.node == node), None)


def _deposed(starts: list[Recorded], event: Recorded) -> bool:
    """Return whether the node that recorded it leads in an older epoch than another one."""
    own = _own_epoch(starts, event.node)
    return own is not None and any(int(start.get("leader_epoch")) > own for start in starts)


def _successor(starts: list[Recorded], event: Recorded) -> Recorded | None:
    """The first that led after it since its HW began to stand still."""
    own, begin_ms = _own_epoch(starts, event.node), event.ms - int(event.get("stalled_ms"))
    return next((it for it in starts if own is not None and int(it.get("leader_epoch")) > own and it.ms >= begin_ms), None)
