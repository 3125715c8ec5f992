"""Stories in the formats of other tools: each step once, each cause, and no name of a client that is more than text."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.obs.explain_story import Explanation, SecondsClock, Step, Story, WallClock
from kraftlite.obs.export import FORMATS
from kraftlite.obs.export.steps import MAX_MS, in_order
from tests.harness.exports import READERS

HOSTILE = (
    "a\nn1 {}",
    'n1 {"n1": 7}',
    "=== 1. x ===",
    "x\n=== 2. y ===\n",
    "end\n  rect rgb(0,0,0)",
    "x; n1->>n1: y",
    "%%{init: {'theme': 'x'}}%%",
    "style a:b#c;",
    "#35;<script>alert(1)</script>",
    "ﬂ°°60¶ß",
    '"},{"ph":"X"',
    "\x1b[2J\u202e\u2028\x00\ud800",
    "--> x %% y",
)
_TEXTS = st.sampled_from(HOSTILE) | st.text(max_size=30)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Steps whose causes are earlier steps; times in any order, also such as no clock has."""
    times = st.integers(-5, 5_000) | st.sampled_from([-(1 << 63), (1 << 63) - 1, 1_700_000_000_000])
    steps: list[Step] = []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        because = draw(st.none() | st.integers(1, number - 1)) if steps else None
        steps.append(
            Step(
                number=number,
                ms=draw(times),
                node=draw(st.integers(-1, 4) | st.just((1 << 31) - 1)),
                what=draw(_TEXTS),
                brief=draw(st.none() | _TEXTS),
                because=because,
                record=draw(st.none() | st.integers(0, 1 << 40)),
                event=draw(st.none() | _TEXTS),
            )
        )
    at_ms = steps[0].ms
    title = draw(_TEXTS)
    return Story(kind="died", title=title, at_ms=at_ms, from_ms=at_ms, until_ms=None, facts={}, steps=tuple(steps))


@st.composite
def explanations(draw: st.DrawFn) -> Explanation:
    found = draw(st.lists(stories(), min_size=1, max_size=3))
    told = {"subject": draw(_TEXTS), "standing": draw(_TEXTS)}
    clock = draw(st.sampled_from([SecondsClock(), WallClock()]))
    return Explanation(**told, since_ms=0, until_ms=9, stories=(*found,), clock=clock)


@given(found=explanations())
def test_every_step_is_there_once_with_its_cause_whatever_names_say(found: Explanation) -> None:
    wanted = {(story, step.number, step.because) for story, it in enumerate(found.stories, 1) for step in it.steps}
    for name, reader in READERS.items():
        text = FORMATS[name](found)
        assert all(line.isprintable() for line in text.split("\n")), name
        read = reader(text)
        if name == "otlp":  # its traces come by node, so the stories are only told from each other
            assert sorted((step, cause or 0) for _, step, cause in read) == sorted((s, c or 0) for _, s, c in wanted)
            assert len({story for story, _, _ in read}) == len(found.stories)
        elif name == "perfetto":
            assert read == wanted
        else:
            assert {it[:2] for it in read} == {it[:2] for it in wanted}, name


@given(found=explanations())
def test_vector_clocks_say_what_causes_say(found: Explanation) -> None:
    """One step is known to another exactly if a chain of causes and of steps of one node leads there."""
    executions = re.split(r"^=== .* ===$", FORMATS["shiviz"](found).split("\n", 2)[2], flags=re.MULTILINE)[1:]
    for story, text in zip(found.stories, executions, strict=True):
        read = re.findall(r"step (\d+) at .*\n(\S*) (\{.*\})", text)
        clocks = {int(number): (host, json.loads(clock)) for number, host, clock in read}
        order = [step for _, step in in_order(story)]
        before: dict[int, set[int]] = {}
        for at, step in enumerate(order):
            direct = [it.number for it in order[:at] if it.node == step.node]
            direct += [] if step.because is None else [step.because]
            before[step.number] = {step.number}.union(*(before[it] for it in direct))
            host, _ = clocks[step.number]
            assert host == ("no-node" if step.node < 0 else f"node-{step.node}")
            for other in story.steps:
                if other.number in clocks and other in order[: at + 1]:
                    their_host, theirs = clocks[other.number]
                    knows = clocks[step.number][1].get(their_host, 0) >= theirs[their_host]
                    assert knows == (other.number in before[step.number])


@given(story=stories())
def test_no_step_is_before_its_cause(story: Story) -> None:
    found = in_order(story)
    times = {step.number: ms for ms, step in found}
    seen: set[int] = set()
    for ms, step in found:
        assert 0 <= ms <= MAX_MS and (step.because is None or (step.because in seen and times[step.because] <= ms))
        seen.add(step.number)
    assert [ms for ms, _ in found] == sorted(times.values())


def _story(title: str, *, partition: str, until_ms: int | None = None) -> Story:
    first = Step(number=1, ms=5, node=2, what="broker 2 fell silent", brief="silent", because=None, record=None, event=None)
    then = Step(number=2, ms=9, node=1, what="fenced", brief="FENCE", because=1, record=33, event="controller.record_appended")
    facts: dict[str, object] = {"partition": partition}
    return Story(kind="died", title=title, at_ms=5, from_ms=5, until_ms=until_ms, facts=facts, steps=(first, then))


def _explained(*told: Story) -> Explanation:
    return Explanation(subject="node 2", since_ms=0, until_ms=9, standing="-", stories=told, clock=SecondsClock())


def test_a_story_that_goes_on_keeps_its_trace_id_and_another_has_another() -> None:
    def ids(*told: Story) -> list[str]:
        (first, *_) = json.loads(FORMATS["otlp"](_explained(*told)))["resourceSpans"]
        return [span["traceId"] for span in first["scopeSpans"][0]["spans"]]

    now, later = _story("silent", partition="a-0"), _story("silent until 0.009 s", partition="a-0", until_ms=9)
    assert ids(now) == ids(later)
    first, other, twin = ids(now, _story("silent", partition="b-0"), now)
    assert first == ids(now)[0] and len({first, other, twin}) == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("perfetto", '"name": "FENCE"'),
        ("shiviz", 'step 2 at 0.009 s: fenced\nnode-1 {"node-1": 1, "node-2": 1}'),
        ("mermaid", "    n2->>n1: 2. 0.009 s fenced"),
        ("otlp", '"startTimeUnixNano": "9000000"'),
    ],
)
def test_what_a_tool_shows(name: str, words: str) -> None:
    assert words in FORMATS[name](_explained(_story("silent", partition="a-0")))
