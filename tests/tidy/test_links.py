"""Links between the documents lead somewhere, headings included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    """Of the headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", it.lower()).replace(" ", "-") for it in headings}


def broken(path: Path) -> list[str]:
    found = []
    for link in _LINK.findall(_CODE.sub("", path.read_text())):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda it: str(it.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    assert not broken(path)


def test_a_link_to_nowhere_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading, and more\n[a](page.md) [b](gone.md) [c](#a-heading-and-more) [d](page.md#none) `[e](code.md)`\n"
    )
    assert broken(page) == ["gone.md", "page.md#none"]


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [it for it in DOCUMENTS if it.parent == ROOT / "docs" and it.name != "README.md"]
    assert not [it.name for it in pages if f"({it.name}" not in index]
