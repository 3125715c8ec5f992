"""The specification (docs/spec) has every id that is cited, and a test for everything that it says is built."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.tidy import spec, spec_tables

README = (spec.FOLDER / "README.md").read_text()
IDS = {row.id for row in spec.rows()}
# Documents that a clone does not have.
ELSEWHERE = re.compile(
    r"\bseeds/|\bDESIGN\b|\bperformance\.md|\bbehaviours(?:\.md|,| section| \d)|\bspecs/|\bfield-notes|\bhouse\.md"
    r"|(?<![\w./-])shared/"
)
HERE = Path(__file__).relative_to(spec.ROOT).as_posix()


def test_an_id_has_one_row() -> None:
    twice = [one for one, count in Counter(row.id for row in spec.rows()).items() if count > 1]
    assert not twice, twice


def test_every_id_that_is_cited_has_a_row() -> None:
    unknown = [f"{where}: {one}" for one, where in spec.citations() if one not in IDS]
    assert not unknown, "no such row in docs/spec:\n" + "\n".join(unknown)


def test_what_must_and_should_be_has_a_test() -> None:
    untested = [row.id for row in spec.rows() if row.weight in "MS" and not row.missing and row.id not in spec.bearers()]
    assert not untested, f"built, and no test bears the id: {untested}"


def test_what_is_not_built_has_no_test() -> None:
    built = {row.id: spec.bearers()[row.id] for row in spec.rows() if row.missing and row.id in spec.bearers()}
    assert not built, f"a row that says 'not built': {built}"


@pytest.mark.parametrize("page", spec.pages(), ids=lambda page: page.stem)
def test_the_pages_say_who_holds_a_row(page: Path) -> None:
    assert spec.written(page.read_text()) == page.read_text(), "run: python -m tests.tidy.spec --write"


def test_numbers_are_the_defaults_of_their_keys() -> None:
    given = [(row.id, *found) for row in spec.rows() for found in spec_tables.given_defaults(row.text)]
    assert len(given) > 40
    assert not [found for found in given if found[2] != found[3]]


def test_every_invariant_is_checked_and_every_checked_one_is_told() -> None:
    told = spec.invariants()
    assert not [number for number, checkers in told.items() if not checkers], "no checker"
    texts = [text for name, text in spec.texts() if name.endswith((".py", ".md"))]
    cited = {int(number) for text in texts for number in re.findall(r"[Ii]nvariant (\d+)\b", text)}
    assert cited | set(spec_tables.checkers(spec.texts())) <= set(told)


def test_the_readme_knows_every_page_and_family() -> None:
    for page in spec.pages():
        assert f"]({page.name})" in README, page.name
    families = {
        page: set(re.findall(r"\b[A-Z]{2}\b", cell))
        for page, cell in re.findall(r"^\| \[([\w-]+)\]\S+ \| ([A-Z ]+) \|", README, re.MULTILINE)
    }
    for row in spec.rows():
        assert row.id[:2] in families[Path(row.where).stem.partition(".")[0]], row


def test_what_is_yet_to_come_is_not_there() -> None:
    table = README.partition("## What is not here yet")[2]
    left_out = set(re.findall(r"\b[A-Z]{2}-\d\d\b", table))
    for first, last in re.findall(r"\b([A-Z]{2}-\d\d) to ([A-Z]{2}-\d\d)\b", table):
        left_out |= {f"{first[:3]}{number:02}" for number in range(int(first[3:]), int(last[3:]) + 1)}
    assert len(left_out) > 5
    assert not left_out & (IDS | set(spec.bearers()))


def test_nothing_cites_what_a_clone_does_not_have() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in spec.texts()
        if name != HERE and ELSEWHERE.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert not found, "cite an id of docs/spec, a KIP, an ADR or a reason:\n" + "\n".join(found)


def test_documents_that_are_cited_exist() -> None:
    files = set(spec.tracked())
    adrs = {int(Path(name).name[:4]) for name in files if re.fullmatch(r"docs/adr/\d{4}-.*\.md", name)}
    gone = []
    for name, text in spec.texts():
        gone += [f"{name}: {path}" for path in re.findall(r"\bdocs/[\w/-]+\.md", text) if path not in files]
        gone += [
            f"{name}: ADR {number}"
            for number in re.findall(r"\bADR (\d+)|\badr/(\d{4})", text)
            if int("".join(number)) not in adrs
        ]
    assert not gone, "\n".join(gone)


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for name, text in spec.texts():
        if name.endswith(".md"):
            targets = (it for it in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if not re.match(r"[a-z]+:", it))
            broken += [f"{name}: {target}" for target in targets if not (spec.ROOT / name).parent.joinpath(target).exists()]
    assert not broken, "\n".join(broken)
