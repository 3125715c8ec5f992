"""The table of configuration keys in docs/DIFFERENCES.md. `python -m tests.tidy.differences_keys` writes it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kraftlite.model.config_effects import EFFECTS, Effect

PAGE: Final = Path(__file__).parents[2] / "docs" / "DIFFERENCES.md"
BEGIN: Final = "<!-- keys: written by python -m tests.tidy.differences_keys -->\n"
END: Final = "<!-- end of keys -->\n"
_MANY: Final = 12
"""Of more keys with a common beginning only that beginning is shown."""


def table() -> str:
    """One row for each rule that is not simply "applied"."""
    rules = dict.fromkeys(found.rule for found in EFFECTS.values() if found.rule.words)
    order = [Effect.REFUSED, Effect.IN_PART, Effect.APPLIED, Effect.NONE]
    lines = ["| keys | here | why, and what to do |", "|---|---|---|"]
    for rule in sorted(rules, key=lambda rule: (order.index(rule.effect), rule.title)):
        names = [name for name, found in EFFECTS.items() if found.rule is rule]
        shown = ", ".join(f"`{name}`" for name in _shortened(names))
        lines.append(f"| **{rule.title}**: {shown} | {rule.effect} | {rule.words} |")
    return "\n".join(lines) + "\n"


def _shortened(names: list[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        for length in (1, 2):
            family = ".".join(name.split(".")[:length]) + "."
            if sum(other.startswith(family) for other in names) > _MANY and not any(
                other.startswith(family) for other in set(EFFECTS) - set(names)
            ):
                found[f"{family}*"] = None
                break
        else:
            found[name] = None
    return list(found)


def written(page: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
