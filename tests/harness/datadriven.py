"""Golden scenarios in the style of etcd's datadriven tests.

A `.scn` file is blocks separated by blank lines: a command line (and further input lines), `----`, then the expected output.
`# ` lines are comments and stay. `run_scenario(path, handler, rewrite=…)` calls `handler(command, args, body)` per block, where
`args` maps `key=value` words and collects bare words under "" in order; it returns the output text. With `rewrite` the file is
rewritten with what came out; otherwise the first difference fails the test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Args:
    words: tuple[str, ...]
    named: dict[str, str]

    def get(self, name: str, default: str = "") -> str:
        return self.named.get(name, default)

    def int(self, name: str, default: int | None = None) -> int:
        if name in self.named:
            return int(self.named[name])
        if default is None:
            raise KeyError(f"missing argument {name}=")
        return default


Handler = Callable[[str, Args, list[str]], str]


@dataclass(frozen=True)
class Block:
    line: int
    comments: tuple[str, ...]
    command: str
    body: tuple[str, ...]
    expected: str


def parse(text: str) -> list[Block]:
    blocks: list[Block] = []
    comments: list[str] = []
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        if not lines[i].strip() or lines[i].startswith("#"):
            comments.append(lines[i])
            i += 1
            continue
        start = i
        inputs: list[str] = []
        while i < len(lines) and lines[i] != "----" and lines[i].strip():
            inputs.append(lines[i])
            i += 1
        expected: list[str] = []
        if i < len(lines) and lines[i] == "----":
            i += 1
            while i < len(lines) and lines[i].strip():
                expected.append(lines[i])
                i += 1
        blocks.append(Block(start + 1, tuple(comments), inputs[0], tuple(inputs[1:]), "\n".join(expected)))
        comments = []
    return blocks


def _args(words: list[str]) -> Args:
    named = dict(word.split("=", 1) for word in words if "=" in word)
    return Args(tuple(word for word in words if "=" not in word), named)


def run_scenario(path: Path, handler: Handler, *, rewrite: bool) -> None:
    """Run every block of `path` through `handler`; AssertionError at the first difference unless `rewrite`."""
    rendered: list[str] = []
    for block in parse(path.read_text()):
        words = block.command.split()
        actual = handler(words[0], _args(words[1:]), list(block.body)).rstrip()
        rendered.extend(block.comments)
        rendered.extend([block.command, *block.body, "----"])
        if actual:
            rendered.append(actual)
        if not rewrite:
            assert actual == block.expected, (
                f"{path.name}:{block.line}: {block.command}\n--- expected\n{block.expected}\n--- actual\n{actual}\n"
            )
    if rewrite:
        path.write_text("\n".join(rendered) + "\n")
