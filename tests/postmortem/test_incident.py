"""The incident of docs/POSTMORTEM.md: directories that a real Apache Kafka left behind, from which the cause is found."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "POSTMORTEM.md"
GAP = "…"


def examples() -> Iterator[tuple[str, list[str]]]:
    """Each command of the document, with the lines that it prints there."""
    for block in re.findall(r"^```console\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL):
        command, lines = "", []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, lines
                command, lines = line[2:], []
            else:
                lines.append(line)
        yield command, lines


def fits(printed: list[str], said: list[str]) -> bool:
    """Return whether the document says what was printed; a line `…` is any lines, and one that ends so a line that begins so."""
    if not said:
        return not printed
    if said[0] == GAP:
        return any(fits(printed[skipped:], said[1:]) for skipped in range(1, len(printed) + 1))
    if not printed:
        return False
    same = printed[0].startswith(said[0][:-1]) if said[0].endswith(GAP) else printed[0] == said[0]
    return same and fits(printed[1:], said[1:])


def test_the_comparison_sees_a_difference() -> None:
    assert fits(["a", "b", "c"], ["a", "…", "c"]) and fits(["abc"], ["ab…"]) and fits(["a", "b"], ["a", "…"])
    assert (
        not fits(["a"], ["a", "…"]) and not fits(["a", "b"], ["a"]) and not fits(["a"], ["a", "b"]) and not fits(["ab"], ["b…"])
    )


def test_to_42_to_43_every_command_of_the_document_prints_what_is_said(tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "kraftlite"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kraftlite "$@"\n')
    script.chmod(0o755)
    found = list(examples())
    assert len(found) > 10 and sum(command.startswith("kraftlite ") for command, _ in found) > 6
    environment = {
        **os.environ,
        "PATH": f"{script.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TZ": "UTC",
        "COLUMNS": "120",
    }
    for command, said in found:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        printed = [line.rstrip() for line in done.stdout.splitlines()]
        assert fits(printed, said), f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
