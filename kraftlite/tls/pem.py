"""PEM texts: blocks that may be in one line, as Kafka takes them, and certificates and keys out of them.

Source: KIP-651; SE-02.
"""

from __future__ import annotations

import re
from typing import Final

_BLOCK: Final = re.compile(r"-----BEGIN ([^-\n]+)-----([^-]*)-----END \1-----")
_HEADERS: Final = re.compile(r"(?:[A-Za-z-]+:[^\n]*\n)+\n?")
"""The lines before the base64 of a traditional encrypted key, as `Proc-Type: 4,ENCRYPTED`."""


def in_lines(pem: str) -> str:
    """The text with every block in lines of 64 characters: OpenSSL wants lines, and properties have few."""
    return _BLOCK.sub(lambda found: "\n" + _block(found[1], found[2]), pem)


def blocks(pem: str, kind: str) -> list[str]:
    """The blocks whose label ends with `kind` (`CERTIFICATE`, `PRIVATE KEY`), each as a PEM text of its own."""
    return [_block(found[1], found[2]) for found in _BLOCK.finditer(pem) if found[1].endswith(kind)]


def _block(label: str, content: str) -> str:
    content = content.replace("\r", "").lstrip()
    headers = _HEADERS.match(content)
    before = "" if headers is None else headers[0].rstrip("\n") + "\n\n"
    body = "".join(content[0 if headers is None else headers.end() :].split())
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN {label}-----\n{before}{lines}\n-----END {label}-----\n"
