"""The name in a certificate as Java prints it: RFC 2253, which is the name of an SSL client before any rule has changed it.

`javax.security.auth.x500.X500Principal.getName()` is the text that Kafka's rules and ACLs are written for. It names nine types
of attributes and gives all others by number, with their value in hexadecimal. Source: RFC 2253; X.690 (DER); SE-04.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MAX_NAME_BYTES: Final = 16_384
"""More than any certificate authority puts into a name."""
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS: Final = frozenset({12, 18, 19, 20, 22, 27, 30})
"""Tags whose content Java takes for UTF-8, BMPString included: all texts but VisibleString and UniversalString."""
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 6
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def rfc2253(name: bytes) -> str:
    """The text of a DER-encoded name. Raises ValueError when it is not one."""
    if len(name) > MAX_NAME_BYTES:
        raise ValueError(f"a distinguished name of {len(name)} bytes; allowed are {MAX_NAME_BYTES}")
    ((tag, content, _),) = _elements(name)
    if tag != _SEQUENCE:
        raise ValueError("not a distinguished name")
    parts = []
    for set_tag, relative, _ in _elements(content):
        if set_tag != _SET:
            raise ValueError("not a relative distinguished name")
        parts.append("+".join(_attribute(item) for _, item, _ in _elements(relative)))
    return ",".join(reversed(parts))


def _attribute(encoded: bytes) -> str:
    (oid_tag, oid, _), (tag, value, whole) = _elements(encoded)
    if oid_tag != _OID:
        raise ValueError("an attribute without a type")
    number = _dotted(oid)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or number}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    """Escape what has a meaning in a name, and blanks at both ends."""
    first = len(text) - len(text.lstrip(" \r"))
    last = len(text.rstrip(" \r"))
    found = []
    for at, character in enumerate(text):
        escape = character in _ESCAPED or (character in " \r" and not first <= at < last)
        found.append("\\" + character if escape else "\\00" if character == "\0" else character)
    return "".join(found)


def _dotted(encoded: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in encoded:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise ValueError("an empty object identifier")
    top = min(numbers[0] // 40, 2)
    return ".".join(map(str, (top, numbers[0] - 40 * top, *numbers[1:])))


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(tag, content, all bytes) of each element, one after the other."""
    at = 0
    while at < len(data):
        begin, tag = at, data[at]
        if at + 1 >= len(data):
            raise ValueError("cut off")
        size, at = data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or at + count > len(data):
                raise ValueError("a length that is none")
            size, at = int.from_bytes(data[at : at + count], "big"), at + count
        if at + size > len(data):
            raise ValueError("cut off")
        at += size
        yield tag, data[at - size : at], data[begin:at]
