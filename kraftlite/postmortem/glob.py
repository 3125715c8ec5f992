"""Paths with `*`, `?`, `{a,b}` and `\\`, component by component, as `kafka-metadata-shell` reads them.

Source: Kafka's GlobComponent and GlobVisitor, of 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_PATTERN = 4_096
"""Characters of one component. A longer one is taken as it stands."""


def components(path: str, directory: str = "/") -> list[str]:
    """The components of `path`, seen from `directory`; `.`, `..` and empty ones are resolved."""
    found: list[str] = []
    for part in (path if path.startswith("/") else f"{directory}/{path}").split("/"):
        if part == "..":
            del found[-1:]
        elif part not in ("", "."):
            found.append(part)
    return found


def pattern(component: str) -> re.Pattern[str] | None:
    """The names that a component matches; None: only itself. A group that does not end, or has one within it, is no group."""
    if len(component) > MAX_PATTERN or not set("*?{") & set(component):
        return None
    out: list[str] = []
    literal, group, position = True, False, 0
    while position < len(component):
        one = component[position]
        position += 1
        if one == "*":
            if out[-1:] != [".*"]:
                out.append(".*")
            literal = False
        elif one == "?":
            out.append(".")
            literal = False
        elif one == "\\":
            out.append(re.escape(component[position : position + 1] or one))
            position += 1
        elif one == "{":
            if group:
                return None
            out.append("(?:(?:")
            literal, group = False, True
        elif one == "," and group:
            out.append(")|(?:")
        elif one == "}" and group:
            out.append("))")
            group = False
        else:
            out.append(re.escape(one))
    return None if literal or group else re.compile("".join(out), re.DOTALL)


class Glob:
    """One component of a path."""

    def __init__(self, component: str) -> None:
        self.component = component
        self._pattern = pattern(component)

    @property
    def literal(self) -> bool:
        return self._pattern is None

    def matches(self, name: str) -> bool:
        return name == self.component if self._pattern is None else self._pattern.fullmatch(name) is not None


def touches(globs: Sequence[Glob], path: Sequence[str]) -> bool:
    """Return whether `path` is one that the globs match, is below one, or has one below it."""
    return all(glob.matches(name) for glob, name in zip(globs, path, strict=False))
