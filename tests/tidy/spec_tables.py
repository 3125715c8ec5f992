"""What docs/spec writes from code: the defaults of keys, and which checker of the simulator holds which invariant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.configdef import ConfigKey
from kraftlite.model.group_configs import GROUP_CONFIGS
from kraftlite.model.topic_configs import TOPIC_CONFIGS

CHECKED: Final = "  - checked by "
_DEFAULT: Final = re.compile(r"\| `(?P<key>[a-z.]+)` \| [^|]* \| (?P<about>[^|]+) \|")
_INVARIANT: Final = re.compile(r"- \*\*(?P<number>\d+)\*\* .+\.")
_NAMED: Final = re.compile(r"[Ii]nvariants? (\d+)(?:[^.;]* (?:and|with it) (\d+))?")
_GIVEN: Final = re.compile(r"`(?P<key>[a-z]+(?:\.[a-z]+)+)` \((?P<value>-?\d[^;)]*|2\^63 - 1)[;)]")
_NUMBER: Final = re.compile(r"(?P<number>-?\d[\d,]*(?:\.\d+)?)(?: (?P<unit>[A-Za-z]+))?\b.*")
_UNITS: Final = {
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "s": 1_000, "min": 60_000, "h": 3_600_000, "days": 86_400_000,
}  # fmt: skip


def key_of(name: str) -> ConfigKey | None:
    """A topic's or a group's key before a broker's of the same name."""
    return TOPIC_CONFIGS.get(name) or BROKER_CONFIGS.get(name) or GROUP_CONFIGS.get(name)


def default_of(name: str) -> str:
    """As a cell of the table. KeyError for a key that does not exist."""
    key = key_of(name)
    if key is None:
        raise KeyError(f"{name} is no key of a broker, topic or group")
    if key.default is None:
        return "none"
    return key.default if key.default != str(2**63 - 1) else "2^63 - 1"


def with_defaults(line: str) -> str:
    row = _DEFAULT.fullmatch(line)
    return line if row is None else f"| `{row['key']}` | {default_of(row['key'])} | {row['about']} |"


def given_defaults(text: str) -> Iterator[tuple[str, float, float]]:
    """Each `key` (number) of a sentence: the key, the number that the sentence gives, and the default."""
    for found in _GIVEN.finditer(text):
        name, value = found["key"], found["value"]
        key = key_of(name)
        if key is None or key.default is None:
            continue
        if value == "2^63 - 1":
            yield name, float(2**63 - 1), float(key.default)
            continue
        number = _NUMBER.fullmatch(value)
        assert number is not None, value
        yield name, float(number["number"].replace(",", "")) * _UNITS.get(number["unit"] or "", 1), float(key.default)


def invariant_of(line: str) -> int | None:
    row = _INVARIANT.fullmatch(line)
    return None if row is None else int(row["number"])


def checkers(texts: Iterable[tuple[str, str]]) -> dict[int, list[str]]:
    """For each invariant the modules that say in their docstring, or in `numbers`, that they check it; tests by their names."""
    found: dict[int, dict[str, None]] = {}
    for name, text in texts:
        wanted = name.startswith("kraftlite/sim/") or (name.startswith("tests/") and "def test_inv_" in text)
        if not name.endswith(".py") or not wanted or name.startswith("tests/tidy/"):
            continue
        module = ast.parse(text)
        if name.startswith("kraftlite/sim/"):
            for named in _NAMED.finditer((ast.get_docstring(module) or "").replace("\n", " ")):
                for number in filter(None, named.groups()):
                    found.setdefault(int(number), {})[name] = None
            for node in ast.walk(module):
                if (
                    isinstance(node, ast.AnnAssign)
                    and ast.unparse(node.target) == "numbers"
                    and isinstance(node.value, ast.Tuple)
                ):
                    for number in ast.literal_eval(node.value):
                        found.setdefault(number, {})[name] = None
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef) and (match := re.match(r"test_inv_(\d+)_", node.name)):
                found.setdefault(int(match[1]), {})[f"{name}::{node.name}"] = None
    return {number: sorted(names) for number, names in found.items()}
