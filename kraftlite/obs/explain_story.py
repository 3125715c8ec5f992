"""The parts of an explanation: stories, each a chain of steps of which every one says what it follows from.

Steps come in causal order: a step is never before its cause. As text: one line with the brief words of the steps that matter,
then a table with when, where, what and because. As JSON: the same, by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from kraftlite.obs.explain_events import Recorded

ARROW: Final = " ▸ "


class Clock(Protocol):
    """The way in which times are shown."""

    def short(self, ms: int) -> str:
        """Within a sentence."""
        ...

    def exact(self, ms: int) -> str:
        """Show a time in a table, to the millisecond."""
        ...

    def stamp(self, ms: int) -> str:
        """Show a time by itself, with the date if there is one."""
        ...


class SecondsClock:
    """`12.4 s`: time since the beginning, as a simulation has it."""

    def short(self, ms: int) -> str:
        return f"{ms / 1000:.1f} s"

    def exact(self, ms: int) -> str:
        return f"{ms / 1000:.3f} s"

    def stamp(self, ms: int) -> str:
        return self.short(ms)


class WallClock:
    """`18:01:33.41` in this machine's time zone, for milliseconds since 1970."""

    def short(self, ms: int) -> str:
        return self.exact(ms)[:-1]

    def exact(self, ms: int) -> str:
        return f"{datetime.fromtimestamp(ms // 1000):%H:%M:%S}.{ms % 1000:03d}"

    def stamp(self, ms: int) -> str:
        return f"{datetime.fromtimestamp(ms // 1000):%Y-%m-%d} {self.short(ms)}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """`because`: the number of the step that it follows from, in the same story; None where the chain begins.

    `brief`: its words in the one-line chain; None when the chain does without it. `record`: the offset in the metadata log, where
    the step is a record or what a node made of one. `node` is where it was recorded.
    """

    number: int
    ms: int
    node: int
    what: str
    brief: str | None
    because: int | None
    record: int | None
    event: str | None

    def to_dict(self) -> dict[str, object]:
        return {
            "step": self.number,
            "ms": self.ms,
            "node": self.node,
            "what": self.what,
            "brief": self.brief,
            "because": self.because,
            "record": self.record,
            "event": self.event,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Story:
    """`kind` is one of the names in docs/EXPLAIN.md; `facts` are what a program wants to know of it.

    `until_ms` None: it goes on as far as is recorded.
    """

    kind: str
    title: str
    at_ms: int
    from_ms: int
    until_ms: int | None
    facts: dict[str, object]
    steps: tuple[Step, ...]

    @property
    def chain(self) -> str:
        return ARROW.join(step.brief for step in self.steps if step.brief is not None)

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "title": self.title,
            "at_ms": self.at_ms,
            "from_ms": self.from_ms,
            "until_ms": self.until_ms,
            **self.facts,
            "chain": self.chain,
            "steps": [step.to_dict() for step in self.steps],
        }


@dataclass(slots=True)
class Telling:
    """A story under construction. `add` returns the step, to be the `because` of those that follow from it."""

    clock: Clock
    steps: list[Step] = field(default_factory=list)

    def add(
        self,
        ms: int,
        node: int,
        what: str,
        *,
        because: Step | None = None,
        brief: str | None = None,
        record: int | None = None,
        event: str | None = None,
    ) -> Step:
        step = Step(
            number=len(self.steps) + 1,
            ms=ms,
            node=node,
            what=what,
            brief=brief,
            because=None if because is None else because.number,
            record=record,
            event=event,
        )
        self.steps.append(step)
        return step

    def note(self, event: Recorded, what: str, *, because: Step | None = None, brief: str | None = None) -> Step:
        """A step that is a recorded event."""
        offset = event.get("offset") if event.event == "controller.record_appended" else event.caused_by_record
        return self.add(event.ms, event.node, what, because=because, brief=brief, record=offset, event=event.event)

    def story(
        self,
        kind: str,
        title: str,
        at_ms: int,
        *,
        from_ms: int | None = None,
        until_ms: int | None = None,
        goes_on: bool = False,
        **facts: object,
    ) -> Story:
        """`from_ms` defaults to `at_ms` (steps before it only lead up to it), `until_ms` to the last step; `goes_on`: no end."""
        times = [step.ms for step in self.steps] or [at_ms]
        if until_ms is None and not goes_on:
            until_ms = max(times)
        return Story(
            kind=kind,
            title=title,
            at_ms=at_ms,
            from_ms=at_ms if from_ms is None else min(from_ms, at_ms),
            until_ms=until_ms,
            facts=facts,
            steps=tuple(self.steps),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """The answer to "what happened to `subject`, and why": its stories in the range, by time, and how it stands at the end."""

    subject: str
    since_ms: int
    until_ms: int
    standing: str
    stories: tuple[Story, ...]
    clock: Clock
    missing: tuple[str, ...] = ()
    """Facts that the nodes' traces would add, where there is only a metadata log."""

    def to_dict(self) -> dict[str, object]:
        return {
            "subject": self.subject,
            "since_ms": self.since_ms,
            "until_ms": self.until_ms,
            "standing": self.standing,
            "stories": [story.to_dict() for story in self.stories],
            "not_in_the_log": list(self.missing),
        }

    def lines(self) -> list[str]:
        clock = self.clock
        span = f"{clock.stamp(self.since_ms)} to {clock.stamp(self.until_ms)}"
        found = [f"{self.subject}, {span}: {self.standing}"]
        if not self.stories:
            found.append("  nothing that changed it is recorded in this time")
        for story in self.stories:
            found += ["", f"{clock.short(story.at_ms)}  {story.title}", f"  {story.chain}", *_table(story.steps, clock)]
        if self.missing:
            found += ["", "This is what the metadata log tells. Traces of the nodes, or their own logs, would add:"]
            found += [f"  - {line}" for line in self.missing]
        return found

    def text(self) -> str:
        return "\n".join(self.lines())


def _table(steps: Sequence[Step], clock: Clock) -> Iterable[str]:
    rows = [("", "when", "where", "because", "what")]
    rows += [
        (
            str(step.number),
            clock.exact(step.ms),
            f"node {step.node}" if step.node >= 0 else "-",
            "" if step.because is None else f"of {step.because}",
            step.what,
        )
        for step in steps
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, *cells in rows:
        text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield f"    {number.rjust(widths[0])}  {text}".rstrip()


def seconds(ms: int) -> str:
    """A duration."""
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def ids(members: Iterable[int] | None) -> str:
    """None: an event does not say which."""
    if members is None:
        return "unknown"
    return ",".join(map(str, members)) or "none"


def who(leader: int | None) -> str:
    return "none" if leader is None else str(leader)
