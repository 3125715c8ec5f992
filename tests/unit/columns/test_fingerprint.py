"""The fingerprint of rows: the same in every order and in every cut, another one for other rows."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

from kraftlite.columns.fingerprint import LONG_BYTES, Fingerprint, bytes_hashes, fill_with_numpy  # noqa: E402

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None, str]
bytes_ = st.none() | st.binary(max_size=40) | st.integers(0, 3).map(lambda it: b"x" * (LONG_BYTES - 1 + it))
rows_ = st.lists(
    st.tuples(
        bytes_,
        bytes_,
        st.none() | st.lists(st.tuples(st.sampled_from(["a", "b"]), st.none() | st.binary(max_size=3)), max_size=3),
        st.none() | st.integers(0, 2),
        st.sampled_from(["t", "u"]),
    ),
    max_size=8,
)


def batch_of(rows: list[Row]) -> Any:
    headers = [None if it[2] is None else [{"key": key, "value": value} for key, value in it[2]] for it in rows]
    columns = {
        "key": pa.array([it[0] for it in rows], pa.binary()),
        "value": pa.array([it[1] for it in rows], pa.binary()),
        "headers": pa.array(headers, HEADERS),
        "partition": pa.array([it[3] for it in rows], pa.int32()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def fingerprint(rows: list[Row], *cuts: int, whole: Any = None) -> str:
    found = Fingerprint()
    batch = batch_of(rows) if whole is None else whole
    for low, high in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        names = [it[4] for it in rows[low:high]]
        topics = [(name, np.flatnonzero([it == name for it in names])) for name in sorted({*names})]
        found.add(batch.slice(low, high - low), topics)
    return found.text


def canonical(rows: list[Row]) -> list[Any]:
    """No headers are as an empty list of them: their records are the same."""
    return sorted(repr((key, value, headers or [], partition, topic)) for key, value, headers, partition, topic in rows)


@settings(max_examples=60)
@given(rows_, rows_, st.randoms(use_true_random=False))
def test_sx_01_the_fingerprint_is_of_the_rows_and_not_of_their_order(one: list[Row], two: list[Row], random_: Any) -> None:
    shuffled = random_.sample(one, len(one))
    cut = random_.randint(0, len(one))
    assert fingerprint(one) == fingerprint(shuffled) == fingerprint(shuffled, cut)
    assert (fingerprint(one) == fingerprint(two)) == (canonical(one) == canonical(two))


@pytest.fixture(scope="module")
def compiled() -> Any:
    return pytest.importorskip("kraftlite.columns._hashes", reason="no compiled hashes: the install said why")


@settings(max_examples=60)
@given(st.lists(bytes_, max_size=20), st.integers(0, 3), st.integers(0, 3))
def test_c_and_numpy_give_the_same_hashes(compiled: Any, contents: list[bytes | None], before: int, behind: int) -> None:
    array = pa.array(contents, pa.binary())[before:]
    array = array[: max(len(array) - behind, 0)]
    buffers = array.buffers()
    edges = np.zeros(1, np.int64)
    if len(array):
        edges = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    found = [np.zeros((2, len(array)), np.uint64) for _ in range(2)]
    for fill, them in zip((compiled.fill, fill_with_numpy), found, strict=True):
        fill(memoryview(buffers[2] or b""), edges, them, LONG_BYTES)
    short = np.diff(edges) <= LONG_BYTES
    assert (found[0][:, short] == found[1][:, short]).all()
    assert not found[0][:, ~short].any()


def test_the_hash_of_a_content_is_what_earlier_versions_have_recorded() -> None:
    """Fingerprints stand in decisions, and are compared by whoever runs a batch again, after an upgrade too."""
    rows: list[Row] = [(b"key", b"a value of three words", [("h", b"x")], 1, "t"), (None, b"", None, None, "t")]
    assert fingerprint(rows) == "233d35c085b311df5a979397a6006316"


@pytest.mark.parametrize(
    ("edges", "room", "message"),
    [
        ([0, 4], 2, "outside of the data"),
        ([-1, 2], 2, "outside of the data"),
        ([0, 3, 2], 4, "before the one before it"),
        ([0, 1 << 62, 2], 4, "before the one before it"),
        ([0, -5, 2], 4, "before the one before it"),
        ([0, 2], 1, "room"),
        ([0, 2], 3, "room"),
        ([], 0, "one more than contents"),
    ],
)
def test_edges_that_cannot_be_are_refused(compiled: Any, edges: list[int], room: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compiled.fill(b"abc", np.array(edges, np.int64), np.zeros(room, np.uint64), 10)


def test_no_two_contents_have_the_same_hash() -> None:
    """Lengths, nulls, and contents that differ in one bit or by zeros at their end."""
    draw = random.Random("fingerprint")
    contents: set[bytes | None] = {None, b"", *(b"\0" * size for size in range(1, 40))}
    for size in (*range(1, 26), LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 1):
        base = draw.randbytes(size)
        contents |= {
            base,
            *(base[:at] + bytes([base[at] ^ 1 << bit]) + base[at + 1 :] for at in range(min(size, 30)) for bit in range(8)),
        }
    ordered = sorted(contents, key=lambda it: (it is None, it or b""))
    found = bytes_hashes(pa.array(ordered, pa.binary()))
    for lane in (0, 1):
        assert len({int(it) for it in found[lane]}) == len(contents)
    alone = np.concatenate([bytes_hashes(pa.array([it], pa.binary())) for it in ordered[:50]], axis=1)
    assert (alone == found[:, :50]).all(), "who stands beside it does not count"


def test_the_same_rows_of_two_tasks_do_not_cancel_out() -> None:
    row: Row = (b"k", b"v", None, None, "t")
    assert len({fingerprint([row] * times) for times in range(5)}) == 5
    assert fingerprint([]) == "0" * 32 and len(fingerprint([row])) == 32
