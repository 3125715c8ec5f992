"""The two scanners of records: what each finds, and that they agree on every byte and every cut."""

from __future__ import annotations

import itertools
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlite.log import scan
from kraftlite.log.scan import BOUND_TIMES, NEED_KEYS, REFUSE_TIMES, PythonScanner, RecordScanner
from tests.harness.poison import GOOD, fields, record, sized, structures, varint

IMPLEMENTATIONS = sorted({PythonScanner, scan.Scanner}, key=lambda it: it.__module__)
Answer = tuple[int, int, int, int, list[tuple[int, int, int]]]
LIMITS = st.sampled_from((-(2**63), -1, 0, 500, 1000, 2**62, 2**63 - 1))


def look(
    kind: type[RecordScanner], body: bytes, count: int, cuts: list[int], base: int, low: int, high: int, flags: int
) -> list[Answer]:
    """What it says after each chunk, and at the end."""
    scanner = kind(count, base, low, high, flags)
    told = []
    for start, end in itertools.pairwise([0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]):
        fault = scanner.feed(body[start:end])
        told.append((fault, scanner.records, scanner.max_timestamp, scanner.refused, list(scanner.errors)))
        if fault:
            return told
    told.append((scanner.finish(), scanner.records, scanner.max_timestamp, scanner.refused, list(scanner.errors)))
    return told


def agreed(body: bytes, count: int, cuts: list[int], base: int = 0, low: int = 0, high: int = 0, flags: int = 0) -> Answer:
    found = [look(kind, body, count, cuts, base, low, high, flags) for kind in IMPLEMENTATIONS]
    assert all(it == found[0] for it in found), (body.hex(), count, cuts)
    return found[0][-1]


def test_the_compiled_scanner_is_there_where_a_compiler_is() -> None:
    """So that the comparison below compares two."""
    if scan.IMPLEMENTATION == "python":
        pytest.skip("no compiled scanner: the install said why")
    assert len(IMPLEMENTATIONS) == 2


@pytest.mark.parametrize(("name", "body", "count"), [(it[0], it[1], it[2]) for it in structures() if not it[3]])
def test_every_malformed_structure_is_found_at_every_cut(name: str, body: bytes, count: int) -> None:
    if count <= 0 or count > 1000:
        return  # of the header: nothing of it reaches a scanner
    fault = agreed(body, count, [])[0]
    assert fault, name
    for cut in range(len(body)):
        assert agreed(body, count, [cut])[0] == fault, name
    assert agreed(body, count, list(range(len(body))))[0] == fault, name


def test_good_records_pass_at_every_cut() -> None:
    headers = varint(2) + sized(b"name") + sized(b"x" * 300) + sized(b"") + sized(None)
    body = (
        GOOD
        + record(fields(3, key=sized(None), value=sized(None), headers=headers))
        + record(fields(4, value=sized(b"v" * 70_000)))
    )
    for cut in (*range(300), 1000, 70_000):
        assert agreed(body, 5, [cut]) == (0, 5, 0, 0, [])


def test_refused_records_are_named_up_to_a_limit() -> None:
    body = b"".join(record(fields(at, key=sized(None if at % 2 else b"k"))) for at in range(3000))
    fault, records, _, refused, errors = agreed(body, 3000, [5000], flags=NEED_KEYS)
    assert (fault, records, refused) == (0, 3000, 1500)
    assert [index for index, _, _ in errors] == list(range(1, 2 * scan.NAMED_ERRORS, 2))


def test_times_are_bounded_and_the_highest_is_known() -> None:
    body = b"".join(record(fields(at, timestamp=delta)) for at, delta in enumerate((5, -1, -7, 90, 2**62)))
    base = 2**62
    assert agreed(body, 5, [], base=0)[2] == 2**62
    assert [it[0] for it in agreed(body, 5, [], base=0, low=0, high=50, flags=BOUND_TIMES)[4]] == [2, 3, 4], "-1 is no time"
    over = agreed(body, 5, [], base=base, low=-(2**63), high=2**63 - 1, flags=BOUND_TIMES)
    assert [it[0] for it in over[4]] == [4] and over[2] == base + 90, "beyond 64 bits is out of every bound"
    assert agreed(body, 5, [], flags=REFUSE_TIMES)[3] == 5


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records, mostly good ones, then bytes of them changed, added or taken away."""
    count = draw(st.integers(1, 6))
    name = st.one_of(st.none(), st.binary(max_size=5), st.just(b"x" * 200))
    parts = []
    for at in range(count):
        pairs = draw(st.lists(st.tuples(st.binary(max_size=3), name), max_size=3))
        headers = varint(len(pairs)) + b"".join(sized(key) + sized(value) for key, value in pairs)
        stamp = draw(st.sampled_from((0, 1, -1, 700, 2**40, 2**62, -(2**63))))
        parts.append(record(fields(at, timestamp=stamp, key=sized(draw(name)), value=sized(draw(name)), headers=headers)))
    body = bytearray(b"".join(parts))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        match draw(st.sampled_from("scid")):
            case "s":
                body[at : at + 1] = bytes([draw(st.sampled_from((0, 1, 2, 3, 0x0F, 0x10, 0x7F, 0x80, 0xFF)))])
            case "c":
                body[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "i":
                body[at:at] = draw(st.binary(max_size=12))
            case _:
                del body[at : at + draw(st.integers(1, 4))]
    return bytes(body), count + draw(st.sampled_from((0, 0, 0, 1, -1)))


@settings(max_examples=400)
@given(bodies(), st.lists(st.integers(0, 400), max_size=6), LIMITS, LIMITS, LIMITS, st.integers(0, 7))
def test_both_agree(made: tuple[bytes, int], cuts: list[int], base: int, low: int, high: int, flags: int) -> None:
    agreed(*made, cuts, base, low, high, flags)


def test_both_agree_on_rubbish() -> None:
    rng = random.Random(5)
    for _ in range(2000):
        body = bytearray(GOOD * 3)
        for _ in range(rng.randrange(4)):
            body[rng.randrange(len(body))] = rng.choice((0, 1, 2, 3, 4, 127, 128, 255, rng.randrange(256)))
        agreed(
            bytes(body),
            rng.choice((3, 4)),
            [rng.randrange(len(body)) for _ in range(rng.randrange(3))],
            10**12,
            0,
            10**13,
            rng.randrange(8),
        )


@pytest.mark.slow
def test_the_compiled_scanner_stays_within_its_bytes(tmp_path: Path) -> None:
    """A million changed bodies under the address and undefined-behaviour sanitizers, each in a block of exactly its size."""
    source = Path(__file__).with_name("scan_fuzz.c")
    program = tmp_path / "scan_fuzz"
    include = Path(scan.__file__).parent
    command = ["cc", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{include}", str(source)]
    try:
        built = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    if built.returncode and "sanitize" in built.stderr:
        pytest.skip(f"no sanitizers: {built.stderr.splitlines()[0]}")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(program), "1000000", "7"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
