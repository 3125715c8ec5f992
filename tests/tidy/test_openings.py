"""A docstring says first what a thing is or does (CONTRIBUTING, "Style"): it does not open with a bare fragment."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FRAGMENTS: Final = frozenset({"As", "How", "Of", "What", "When", "Where", "Whether", "Which", "Who", "Whose", "Why"})
"""Words that begin no sentence of a docstring: the sentence that follows has no subject."""


def openings(source: str) -> Iterator[tuple[int, str]]:
    """The line and the first word of each docstring, those of attributes included."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                word = re.match(r"\s*([A-Za-z]+)", text) if isinstance(text, str) else None
                if word is not None:
                    yield statement.lineno, word[1]


def test_docstrings_open_with_a_subject_or_a_verb() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word} …"
        for path in sorted((ROOT / "kraftlite").rglob("*.py"))
        if "_pb" not in path.parts
        for line, word in openings(path.read_text())
        if word in FRAGMENTS
    ]
    assert not found, "say first what it is or does (CONTRIBUTING, Style):\n" + "\n".join(found)


def test_a_fragment_is_seen() -> None:
    source = '"""Of a module."""\nclass A:\n    """Whether it is."""\n    x = 1\n    """As y."""\n'
    source += '    def f(self):\n        """Return x."""\n'
    assert Counter(word for _, word in openings(source)) == {"Of": 1, "Whether": 1, "As": 1, "Return": 1}
