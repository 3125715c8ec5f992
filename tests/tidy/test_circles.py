"""No module needs itself through others: of any two of them at least one can be read, tested and moved without the other.

Counted is every import in the package: at the top of a module, inside a function, and those that are there for types alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.tidy.test_tidy import ROOT, sources, tree


def imported(module: ast.Module, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of the package that this one imports: `from a import b` means a.b when that is one, else a."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "imports are absolute"
            for alias in node.names:
                found = f"{node.module}.{alias.name}"
                if found in known:
                    yield found
                elif node.module in known:
                    yield node.module


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle, from a module back to itself; empty when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    known = {name_of(path): path for path in sources()}
    graph = {name: set(imported(tree(path), known)) - {name} for name, path in known.items()}
    assert sum(map(len, graph.values())) > len(graph), "the imports were not found"
    assert not circle(graph), "these modules need each other: " + " ← ".join(circle(graph))


@pytest.mark.parametrize(
    "text",
    [
        "from kraftlite.b import thing",
        "import kraftlite.b",
        "from kraftlite import b",
        "def later():\n    from kraftlite.b import thing",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kraftlite.b import Thing",
    ],
)
def test_an_import_of_any_kind_closes_a_circle(text: str) -> None:
    known = {name: Path() for name in ("kraftlite", "kraftlite.a", "kraftlite.b")}
    graph = {
        "kraftlite.a": set(imported(ast.parse(text), known)),
        "kraftlite.b": set(imported(ast.parse("from kraftlite.a import other"), known)),
    }
    assert set(circle(graph)) == {"kraftlite.a", "kraftlite.b"}
    assert not circle({**graph, "kraftlite.a": set()})
