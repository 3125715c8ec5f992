"""Login modules as `sasl.jaas.config` writes them. Source: Kafka's JaasConfig; KIP-85; SE-11.

`org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="…";`
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The mechanisms that there are, for brokers and clients alike."""
MAX_CHARACTERS: Final = 64 * 1024
_HEAD: Final = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b(.*)", re.DOTALL | re.IGNORECASE)
_OPTION: Final = re.compile(r"""\s*([\w.-]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s"';=]+)(?=[\s;])""", re.DOTALL)
_END: Final = re.compile(r"\s*;\s*\Z")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LoginModule:
    """`class_name` as it is written. `options` may hold passwords."""

    class_name: str
    options: dict[str, str] = field(repr=False)

    @property
    def short_name(self) -> str:
        return self.class_name.rpartition(".")[2]


def parse_jaas(text: str) -> LoginModule:
    """Read the only login module of a text. Raises ValueError that tells the place and never the text, which has passwords."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters; allowed are at most {MAX_CHARACTERS}")
    head = _HEAD.fullmatch(text)
    if head is None:
        raise ValueError("it does not begin with the class of a login module and the word required")
    options: dict[str, str] = {}
    body, at = head[3], 0
    while (option := _OPTION.match(body, at)) is not None:
        name, value = option[1], option[2]
        if name in options:
            raise ValueError(f"option {len(options) + 1} has the name of an earlier one")
        options[name] = _ESCAPED.sub(r"\1", value[1:-1]) if value[0] in "\"'" else value
        at = option.end()
    if _END.match(body, at):
        return LoginModule(head[1], options)
    behind = f"behind option {len(options)}" if options else f"behind {head[2]}"
    if ";" in body[at:]:
        raise ValueError(f'it cannot be read {behind}: allowed are options as name="value", and one semicolon at the end')
    raise ValueError(f"it cannot be read {behind}: the semicolon at its end is missing")
