"""`ssl.principal.mapping.rules`: from the name in a certificate to the name of a user.

A rule is `DEFAULT`, which keeps the name, or `RULE:pattern/replacement/` with an optional `L` or `U` behind it, for lower or
upper case; commas separate them. The first rule whose pattern fits the whole name decides. Within pattern and replacement a
slash is written `\\/`. Patterns are those of RE2, which takes linear time for any name; it has no lookaround and no references
back, for which Kafka takes Java's. Source: KIP-371; SE-04.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import re2

_PART: Final = r"((?:\\.|[^\\/])*)/"
_RULE: Final = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}{_PART}([LU]?)|)\s*(,|\Z)", re.DOTALL)
MAX_RULES: Final = 100
MAX_TEXT: Final = 16_384


@dataclass(frozen=True, slots=True)
class _Rule:
    """`pattern` None: the name as it is. `parts`: literal texts, and numbers of groups."""

    pattern: Any
    parts: Sequence[str | int]
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self._replace_all(name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _replace_all(self, name: str) -> str:
        """Kafka replaces every match, as if it had not asked for the whole name: `.*` fits once more behind the last one."""
        found: list[str] = []
        at = copied = 0
        while at <= len(name) and (match := self.pattern.search(name, at)) is not None:
            found.append(name[copied : match.start()])
            found += [part if isinstance(part, str) else match.group(part) or "" for part in self.parts]
            copied = match.end()
            at = copied + (match.start() == match.end())
        return "".join(found) + name[copied:]


class MappingRules:
    """The rules in their order. Immutable."""

    def __init__(self, text: str, rules: Sequence[_Rule]) -> None:
        self.text = text
        self._rules = tuple(rules)

    @classmethod
    def parse(cls, text: str) -> MappingRules:
        """Raises ValueError that quotes the rule that cannot be read."""
        text = text.strip()
        if len(text) > MAX_TEXT:
            raise ValueError(f"{len(text)} characters; allowed are {MAX_TEXT}")
        rules: list[_Rule] = []
        at = 0
        while at < len(text):
            found = _RULE.match(text, at)
            if found is None:
                raise ValueError(
                    f"{text[at : at + 200]!r}: allowed is DEFAULT or RULE:pattern/replacement/ with L or U behind it"
                )
            if found[1] is not None:
                rules.append(_Rule(None, (), ""))
            elif found[2] is not None:
                rules.append(_rule(found[2], found[3], found[4]))
            if len(rules) > MAX_RULES:
                raise ValueError(f"more than {MAX_RULES} rules")
            at = found.end()
        return cls(text, rules)

    def name_of(self, distinguished_name: str) -> str | None:
        """The name of the user; None: no rule fits."""
        for rule in self._rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MappingRules) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as error:
        raise ValueError(f"pattern {pattern[:200]!r}: {error}") from None
    return _Rule(compiled, _parts(replacement, compiled.groups), case)


def _parts(replacement: str, groups: int) -> list[str | int]:
    """`$2` is a group; a number behind it belongs to it as long as there are so many groups. A group that is not there stays as
    it is written, and so does a dollar without a number. A backslash takes the next character as it is."""
    found: list[str | int] = []
    at = 0
    while at < len(replacement):
        character = replacement[at]
        digits = re.compile("[0-9]+").match(replacement, at + 1) if character == "$" else None
        if character == "\\" and at + 1 < len(replacement):
            found.append(replacement[at + 1])
            at += 2
        elif digits is not None:
            end = at + 2
            while end < digits.end() and int(replacement[at + 1 : end + 1]) <= groups:
                end += 1
            number = int(replacement[at + 1 : end])
            if number <= groups:
                found.append(number)
                at = end
            else:
                found.append(replacement[at : digits.end()])
                at = digits.end()
        else:
            found.append(character)
            at += 1
    return found
