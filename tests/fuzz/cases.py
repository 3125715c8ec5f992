"""A case: the steps that were sent, to be sent again. As a file it is TOML, its bytes in hex; topic ids have placeholders."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"
_PLACE: Final = re.compile(rb"<<([a-z-]+)>>")
_AGAIN: Final = re.compile(rb"(.{1,300}?)\1{19,}", re.DOTALL)
_TOKEN: Final = re.compile(r"\(([^)]*)\)\*(\d+) ?|([^()*]+)")
_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class Step:
    """Bytes on one of the case's connections. `answers`: how many frames must come, or the connection be closed; 0: none need."""

    conn: int
    data: bytes
    answers: int = 0
    cuts: tuple[int, ...] = ()
    note: str = ""
    to: str = ""
    """Empty: the client listener. A gRPC path: called with `data`. `grpc0`, `grpc1`, `metrics`: bytes on that port."""


@dataclass(frozen=True, slots=True)
class Case:
    """`door`: kafka, controller, grpc or metrics. `story`: what was seen when it was found."""

    door: str
    steps: tuple[Step, ...]
    name: str = ""
    story: str = ""
    marks: tuple[str, ...] = field(default=())


def template(data: bytes, places: Mapping[str, bytes]) -> bytes:
    """What differs from run to run becomes a placeholder: topic ids, and the cluster's."""
    for name, value in places.items():
        data = data.replace(value, b"<<%s>>" % name.encode())
    return data


def filled(data: bytes, places: Mapping[str, bytes]) -> bytes:
    """The bytes to send."""
    return _PLACE.sub(lambda found: places.get(found[1].decode(), bytes(16)), data)


def _to_text(data: bytes) -> str:
    """Hex; placeholders in angle brackets; what is repeated in parentheses: `(00ff)*3000`."""
    parts = []
    at = 0
    for found in _AGAIN.finditer(data):
        parts += [_with_places(data[at : found.start()])]
        unit = found[1]
        parts.append(f"({_with_places(unit)})*{(found.end() - found.start()) // len(unit)} ")
        at = found.end()
    text = "".join([*parts, _with_places(data[at:])])
    return "\n".join(text[n : n + _WIDTH] for n in range(0, len(text), _WIDTH))


def _with_places(data: bytes) -> str:
    parts = []
    at = 0
    for found in _PLACE.finditer(data):
        parts += [data[at : found.start()].hex(), f"<{found[1].decode()}>"]
        at = found.end()
    return "".join([*parts, data[at:].hex()])


def _from_text(text: str) -> bytes:
    out = b""
    for unit, times, plain in _TOKEN.findall("".join(text.split("\n"))):
        out += _piece(unit) * int(times) if times else _piece(plain)
    return out


def _piece(text: str) -> bytes:
    out = b""
    for part in re.split(r"(<[a-z-]+>)", "".join(text.split())):
        out += b"<<%s>>" % part[1:-1].encode() if part.startswith("<") else bytes.fromhex(part)
    return out


def write(case: Case, path: Path) -> None:
    lines = [f'door = "{case.door}"', "story = '''", case.story.replace("'''", "''"), "'''"]
    for step in case.steps:
        lines += ["", "[[step]]", f"conn = {step.conn}", f"answers = {step.answers}"]
        if step.cuts:
            lines.append(f"cuts = {list(step.cuts)}")
        if step.to:
            lines.append(f'to = "{step.to}"')
        if step.note:
            lines.append(f"note = '''{_plain(step.note)}'''")
        lines += ["data = '''", _to_text(step.data), "'''"]
    path.write_text("\n".join(lines) + "\n")


def _plain(note: str) -> str:
    return "".join(it if it.isprintable() else "?" for it in note).replace("'''", "''")[:300]


def read(path: Path) -> Case:
    found = tomllib.loads(path.read_text())
    steps = tuple(
        Step(it["conn"], _from_text(it["data"]), it["answers"], tuple(it.get("cuts", ())), it.get("note", ""), it.get("to", ""))
        for it in found["step"]
    )
    return Case(found["door"], steps, path.stem, found["story"].strip())


def corpus(door: str | None = None) -> list[Case]:
    found = [read(path) for path in sorted(CORPUS.glob("*.toml"))]
    return [it for it in found if door is None or it.door == door]
