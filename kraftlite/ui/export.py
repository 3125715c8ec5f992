"""A recording as one page in one file: it can be mailed, and opened without a server and without a network.

The modules of the page are put into one script, the recording into a block of data beside it. The policy of the file allows this
script and this style by their hashes, and no request to anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any, Final

STATIC: Final = Path(__file__).parent / "static"
_ENTRY: Final = "app.js"
_IMPORT: Final = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w.]+)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?function (\w+)|class (\w+)|(?:const|let) (\w+))", re.MULTILINE)


def html_of(tape: dict[str, Any]) -> str:
    """The whole page. What nodes and clients have said is data in it, and nothing of it can end the block that it is in."""
    script, style = bundle(), (STATIC / "style.css").read_text()
    icon = base64.b64encode((STATIC / "icon.svg").read_bytes()).decode()
    data = json.dumps(tape, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; style-src 'sha256-{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    title = html.escape(tape["cluster"]["recording"]["title"] or tape["cluster"]["cluster_id"])
    page = (STATIC / "index.html").read_text()
    for old, new in (
        ('<link rel="icon" href="icon.svg" type="image/svg+xml">', f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">'),
        ('<link rel="stylesheet" href="style.css">', f"<style>{style}</style>"),
        ("<title>kraftlite</title>", f"<title>kraftlite: {title}</title>"),
        ('<meta charset="utf-8">', f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        ('<script type="module" src="app.js"></script>', ""),
        ("</body>", f'<script type="application/json" id="tape">{data}</script>\n<script>{script}</script>\n</body>'),
    ):
        assert page.count(old) == 1, f"index.html has not once: {old}"
        page = page.replace(old, new)
    return page


def bundle() -> str:
    """All modules as one script: each is a function that returns what it exports, behind those that it imports from."""
    order: list[str] = []
    _visit(_ENTRY, order, ())
    parts = [f"modules[{json.dumps(name)}] = (() => {{\n{_as_function(name)}\n}})();" for name in order]
    return '(() => {\n"use strict";\nconst modules = {};\n' + "\n".join(parts) + "\n})();\n"


def _visit(name: str, order: list[str], above: tuple[str, ...]) -> None:
    assert name not in above, f"modules import each other: {' → '.join((*above, name))}"
    if name in order:
        return
    for _, needed in _IMPORT.findall((STATIC / name).read_text()):
        _visit(needed, order, (*above, name))
    order.append(name)


def _as_function(name: str) -> str:
    text = (STATIC / name).read_text()
    exported = ["".join(found) for found in _EXPORT.findall(text)]
    text = _IMPORT.sub(lambda it: f"const {{ {it[1]} }} = modules[{json.dumps(it[2])}];", text)
    text = _EXPORT.sub("", text)
    assert not re.search(r"^\s*(import|export)\b", text, re.MULTILINE), f"{name} imports or exports in another form"
    assert "</script" not in text, f"{name} would end the block that it is in"
    return f"{text}return {{ {', '.join(exported)} }};"


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
