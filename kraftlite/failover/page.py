"""The failover report as one HTML page: no script, no font, no other file. Light, and dark where the reader's system is.

For each run a timeline (one lane per node and partition, failures as numbered lines) and its failures; before them, over all
runs, where each failure lies on the scale of each span, and the percentiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from kraftlite.failover.analysis import Failure, RunReport, Span

MAX_RUNS: Final = 12
MAX_LANES: Final = 40
"""The most partitions in one timeline: those that something happened to come first."""
_WIDTH: Final = 1000
_LEFT: Final = 190
_LANE: Final = 24
_METRICS: Final = (
    ("detected_ms", "detected"),
    ("elected_ms", "elected"),
    ("written_ms", "written again"),
    ("caught_up_ms", "caught up"),
)
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2026; --soft: #5a6472; --line: #d5dae1; --back: #ffffff; --panel: #f5f7f9;
  --good: #26794c; --short: #d99a1c; --bad: #c8372d; --mark: #2457c5; --on: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #a3adba; --line: #3a424d; --back: #14171b; --panel: #1d2127;
  --good: #3fae73; --short: #e0ab3f; --bad: #ef6a5f; --mark: #86abff; --on: #14171b; } }
body { margin: 0 auto; max-width: 1080px; padding: 24px 20px 60px; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 8px; } p { margin: 6px 0; }
.soft { color: var(--soft); } .verdict { font-weight: 600; } .ok { color: var(--good); } .no { color: var(--bad); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 8px 0; }
th, td { padding: 4px 12px 4px 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } .l { text-align: left; }
svg { display: block; width: 100%; min-width: 720px; height: auto; background: var(--panel); border-radius: 6px; margin: 8px 0; }
text { fill: var(--ink); font: 13px system-ui, sans-serif; } text.soft { fill: var(--soft); }
text.on { fill: var(--on); font-size: 12px; } text.dim { fill: #14171b; font-size: 12px; }
.grid { stroke: var(--line); } .mark { stroke: var(--mark); stroke-width: 1.5; stroke-dasharray: 4 3; }
.dot { fill: var(--mark); } .median { stroke: var(--ink); stroke-width: 2; } .up, .whole { fill: var(--good); }
.fenced, .leaderless { fill: var(--bad); }
.short, .leaving { fill: var(--short); } .down { fill: var(--soft); }
.stall { fill: var(--bad); }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin: 0 5px 0 14px; vertical-align: -1px; }
"""


def page(runs: Sequence[RunReport], percentiles: Sequence[dict[str, Any]], problems: Sequence[str]) -> str:
    """The whole page. All text in it is escaped."""
    failures = [failure for run in runs for failure in run.failures]
    verdict = '<span class="ok">Every partition was served again.</span>'
    if problems:
        verdict = f'<span class="no">{len(problems)} problem{"s" if len(problems) > 1 else ""}.</span>'
    listed = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    shown = sorted(runs, key=_badness)[:MAX_RUNS]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Failover report</title><style>{_STYLE}</style></head><body>",
        "<h1>Failover report</h1>",
        f'<p class="soft">{_count(len(failures), "failure")} in {_count(len(runs), "run")}; spans count from the failure.</p>',
        f'<p class="verdict">{verdict}</p>{f"<ul>{listed}</ul>" if listed else ""}',
        f"<h2>Over all runs</h2>{_dots(failures)}{_percentiles(percentiles)}",
    ]
    if len(shown) < len(runs):
        parts.append(f'<p class="soft">Of {len(runs)} runs, the {len(shown)} with the longest failures follow.</p>')
    parts += [_run(run) for run in shown]
    return "\n".join([*parts, "</body></html>", ""])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _badness(run: RunReport) -> tuple[int, int, str]:
    """Runs with problems first, then those with the longest outage."""
    longest = max((outage.unavailable_ms or 0 for outage in run.outages), default=0)
    return (-sum(len(failure.problems) for failure in run.failures), -longest, run.run)


def _ms(value: int | None) -> str:
    return "–" if value is None else f"{value / 1000:.2f} s" if value >= 1000 else f"{value} ms"


# over all runs


def _dots(failures: Sequence[Failure]) -> str:
    """Each failure a dot on the scale of each span, the median as a stroke."""
    rows = [
        (f"{kind} {label}", [v for f in failures if f.kind == kind and (v := getattr(f, name)) is not None])
        for kind in ("broker", "controller", "both")
        for name, label in _METRICS
    ]
    rows = [(label, values) for label, values in rows if values]
    if not rows:
        return '<p class="soft">No failure was found.</p>'
    longest = max(max(values) for _, values in rows)
    scale = _Scale(0, longest * 1.06 + 1, _LEFT, _WIDTH - 30)
    height = 40 * len(rows) + 46
    out = [_open(height, "Spans of all failures"), scale.grid(14, height - 34)]
    for index, (label, values) in enumerate(rows):
        y = 34 + 40 * index
        out.append(f'<text x="12" y="{y + 5}">{escape(label)}</text>')
        for place, value in enumerate(sorted(values)):
            jitter = (place % 3 - 1) * 6 if len(values) > 3 else 0
            title = f"<title>{escape(label)}: {_ms(value)}</title>"
            out.append(
                f'<circle class="dot" cx="{scale(value):.1f}" cy="{y + jitter}" r="5" fill-opacity="0.65">{title}</circle>'
            )
        median = scale(sorted(values)[(len(values) - 1) // 2])
        out.append(f'<line class="median" x1="{median:.1f}" x2="{median:.1f}" y1="{y - 13}" y2="{y + 13}"/>')
    return "".join([*out, "</svg>"])


def _percentiles(rows: Sequence[dict[str, Any]]) -> str:
    names = {**dict(_METRICS), "unavailable_ms": "unavailable"}
    head = "".join(f"<th>{name}</th>" for name in ("count", "min", "p50", "p90", "p99", "max"))
    body = "".join(
        f'<tr><td class="l">{escape(row["kind"])}</td><td class="l">{names[row["metric"]]}</td><td>{row["count"]}</td>'
        + "".join(f"<td>{_ms(row[name])}</td>" for name in ("min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms"))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><tr><th class="l">of</th><th class="l">until</th>{head}</tr>{body}</table></div>'
        if rows
        else ""
    )


# one run


class _Scale:
    """Milliseconds to x, with round ticks in seconds."""

    def __init__(self, low: float, high: float, left: float, right: float) -> None:
        self._low, self._span = low, max(high - low, 1.0)
        self._left, self._right = left, right

    def __call__(self, ms: float) -> float:
        inside = min(max(ms, self._low), self._low + self._span)
        return self._left + (inside - self._low) / self._span * (self._right - self._left)

    def grid(self, top: float, bottom: float) -> str:
        """Draw at most nine lines, with their times below."""
        steps = (unit * 10**power for power in range(8) for unit in (1, 2, 5))
        step = next(step for step in steps if self._span / step <= 9)
        out, tick = [], 0
        while tick <= self._span:
            x = self(self._low + tick)
            out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
            label = f"{tick / 1000:g} s" if step >= 100 else f"{tick} ms"
            out.append(f'<text class="soft" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
            tick += step
        return "".join(out)


def _open(height: float, label: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'


def _run(run: RunReport) -> str:
    began = datetime.fromtimestamp(run.began_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    facts = [began, f"{(run.end_ms - run.began_ms) / 1000:.1f} s"]
    if run.acknowledged is None:
        facts.append("no history of a client: how many records were acknowledged is not known")
    else:
        facts.append(f"{run.acknowledged:,} records acknowledged")
    facts += [f"{run.refused:,} refused"] if run.refused else []
    return "\n".join(
        [
            f'<h2>{escape(Path(run.run).name)}</h2><p class="soft">{escape(" · ".join(facts))}</p>',
            _timeline(run),
            _KEY,
            _failures(run),
            _partitions(run),
        ]
    )


_KEY: Final = (
    '<p class="soft"><span class="key" style="background:var(--good);margin-left:0"></span>node up, ISR whole'
    '<span class="key" style="background:var(--short)"></span>ISR short, or node leaving'
    '<span class="key" style="background:var(--bad)"></span>node fenced, no leader, no record acknowledged'
    '<span class="key" style="background:var(--soft)"></span>node down, not noticed yet'
    ". The number in a bar is the leader.</p>"
)


def _timeline(run: RunReport) -> str:
    """Draw the time from a little before the first failure until the last one is forgotten."""
    lanes = _lanes(run)
    if not lanes:
        return ""
    low, high = _window(run)
    top = 30 + 18 * _rows_of_marks(run, _Scale(low, high, _LEFT, _WIDTH - 20))
    height = top + _LANE * len(lanes) + 34
    scale = _Scale(low, high, _LEFT, _WIDTH - 20)
    out = [_open(height, f"Timeline of {Path(run.run).name}"), scale.grid(top - 6, height - 30)]
    at = {lane: top + _LANE * index for index, lane in enumerate(lanes)}
    for lane, y in at.items():
        out.append(
            f'<text x="{_LEFT - 10}" y="{y + 15}" text-anchor="end">{escape(_short(lane))}<title>{escape(lane)}</title></text>'
        )
    inside = [span for span in run.spans if span.lane in at and span.until_ms > low and span.from_ms < high]
    out += [_bar(span, scale, at[span.lane]) for span in inside]
    for outage in run.outages:
        lane, first = f"{outage.topic}-{outage.partition}", outage.first_ack_ms or outage.moved_ms
        if lane in at and outage.unavailable_ms and first is not None:
            x1, x2 = scale(first - outage.unavailable_ms), scale(first)
            title = f"<title>{escape(lane)}: unavailable for {_ms(outage.unavailable_ms)}</title>"
            out.append(_rect("stall", x1, at[lane] + 3, max(x2 - x1, 2), _LANE - 8, title))
    out += [_text(span, scale, at[span.lane]) for span in inside]
    out.append(_marks(run, scale, height - 30))
    return "".join([*out, "</svg>"])


def _lanes(run: RunReport) -> list[str]:
    """The controller, nodes, then partitions: those that were hit first."""
    names = sorted({span.lane for span in run.spans})
    nodes = sorted((name for name in names if name.startswith("node ")), key=lambda name: int(name[5:]))
    hit = list(dict.fromkeys(f"{outage.topic}-{outage.partition}" for outage in run.outages))
    rest = [name for name in names if name not in hit and name not in nodes and name != "controller"]
    partitions = sorted(hit, key=_by_number) or sorted(rest, key=_by_number)
    return [name for name in ("controller",) if name in names] + nodes + partitions[:MAX_LANES]


def _by_number(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def _short(lane: str) -> str:
    return lane if len(lane) <= 24 else f"{lane[:10]}…{lane[-12:]}"


def _window(run: RunReport) -> tuple[int, int]:
    if not run.failures:
        return run.began_ms, max(run.end_ms, run.began_ms + 1)
    low = min(failure.began_ms for failure in run.failures)
    ends = [failure.began_ms + (getattr(failure, name) or 0) for failure in run.failures for name, _ in _METRICS]
    margin = max(500, (max(ends) - low) // 12)
    return max(run.began_ms, low - margin), min(max(run.end_ms, low + 1), max(ends) + margin)


def _bar(span: Span, scale: _Scale, y: float) -> str:
    x1, x2 = scale(span.from_ms), scale(span.until_ms)
    title = f"<title>{escape(span.lane)}: {escape(span.state)}{f', {escape(span.label)}' if span.label else ''}</title>"
    return _rect(span.state, x1, y + 3, max(x2 - x1, 1), _LANE - 8, title)


def _text(span: Span, scale: _Scale, y: float) -> str:
    """Draw the name of the leader where there is room for it."""
    x1, x2 = scale(span.from_ms), scale(span.until_ms)
    if not span.label or x2 - x1 <= 12 + 8 * len(span.label):
        return ""
    kind = "dim" if span.state == "short" else "on"
    return f'<text class="{kind}" x="{x1 + 6:.1f}" y="{y + 15.5}">{escape(span.label)}</text>'


def _rect(kind: str, x: float, y: float, width: float, height: float, title: str) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}" rx="2">{title}</rect>'


def _places(run: RunReport, scale: _Scale) -> list[tuple[Failure, float, int]]:
    """Each failure's line: x, and the row of its label, so that none lies over another."""
    ends: list[float] = []
    found = []
    for failure in run.failures:
        x = scale(failure.began_ms)
        width = 8 * len(_label(failure)) + 14
        row = next((index for index, end in enumerate(ends) if end <= min(x, _WIDTH - width)), len(ends))
        ends[row : row + 1] = [min(x, _WIDTH - width) + width]
        found.append((failure, x, row))
    return found


def _rows_of_marks(run: RunReport, scale: _Scale) -> int:
    return 1 + max((row for _, _, row in _places(run, scale)), default=0)


def _label(failure: Failure) -> str:
    return f"{failure.number}: {failure.event} {failure.node}"


def _marks(run: RunReport, scale: _Scale, bottom: float) -> str:
    out = []
    for failure, x, row in _places(run, scale):
        y = 22 + 18 * row
        left = min(x, _WIDTH - 8 * len(_label(failure)) - 14)
        out.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 4}" y2="{bottom}"/>')
        out.append(f'<text x="{left:.1f}" y="{y}" style="fill:var(--mark);font-weight:600">{escape(_label(failure))}</text>')
    return "".join(out)


def _failures(run: RunReport) -> str:
    head = "".join(f"<th>{label}</th>" for _, label in _METRICS)
    body = "".join(
        f'<tr><td class="l">{failure.number}</td><td class="l">{escape(failure.event)} {escape(failure.kind)} {failure.node}</td>'
        + "".join(f"<td>{_ms(getattr(failure, name))}</td>" for name, _ in _METRICS)
        + f'<td>{failure.led}</td><td>{failure.affected}</td><td class="l soft">{escape(failure.source)}</td></tr>'
        for failure in run.failures
    )
    if not body:
        return '<p class="soft">No failure was found in this run.</p>'
    rest = '<th>led</th><th>partitions hit</th><th class="l">known from</th>'
    return f'<div class="scroll"><table><tr><th class="l">#</th><th class="l">failure</th>{head}{rest}</tr>{body}</table></div>'


def _partitions(run: RunReport) -> str:
    isr = {(row.topic, row.partition): row for row in run.isr}
    body = ""
    for outage in run.outages[: 2 * MAX_LANES]:
        row = isr.get((outage.topic, outage.partition))
        moves = f"{row.shrinks} / {row.expands} / {row.flaps}" if row is not None else "–"
        leaders = " → ".join("none" if leader is None else str(leader) for leader in (outage.leader_before, outage.leader_after))
        body += (
            f'<tr><td class="l">{outage.failure}</td><td class="l">{escape(outage.topic)}-{outage.partition}</td>'
            f'<td class="l">{escape(outage.role)}</td><td>{leaders}</td><td>{_ms(outage.unavailable_ms)}</td>'
            f'<td>{outage.errors}</td><td>{moves}</td><td class="l soft">{escape(outage.source)}</td></tr>'
        )
    if not body:
        return ""
    head = (
        '<th class="l">#</th><th class="l">partition</th><th class="l">the node was its</th><th>leader</th><th>unavailable</th>'
        '<th>refused</th><th>ISR shrank / grew / flapped</th><th class="l">known from</th>'
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
