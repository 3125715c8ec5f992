"""The immutable map behind images."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.metadata.pmap import SMALL, PMap

ITEMS = st.dictionaries(st.integers(0, 200), st.integers(), max_size=3 * SMALL)


@given(ITEMS, ITEMS, st.lists(st.integers(0, 200), max_size=SMALL))
def test_it_behaves_like_a_dict_that_is_never_changed(start: dict[int, int], changes: dict[int, int], removed: list[int]) -> None:
    before = PMap(start)
    after = before.update(changes, removed)
    wanted = {key: value for key, value in start.items() if key not in removed} | changes
    assert before == start and PMap(start) == before
    assert after == wanted and after == PMap(wanted)
    assert list(after) == sorted(wanted) and len(after) == len(wanted)
    assert [after[key] for key in after] == [wanted[key] for key in sorted(wanted)]
    assert all(after.get(key) == wanted.get(key) for key in range(200))


def test_no_change_is_the_same_object() -> None:
    one = PMap({1: 2})
    assert one.update({}) is one
    assert one.update({}, [7]) is one


def test_a_key_removed_twice_is_removed() -> None:
    for size in (1, 2 * SMALL):
        assert 0 not in PMap(dict.fromkeys(range(size), 0)).update({}, [0, 0])


def test_what_is_not_there() -> None:
    one = PMap({"a": 1})
    assert one.get("b") is None and one.get("b", 5) == 5 and "b" not in one
    with pytest.raises(KeyError):
        one["b"]
    assert one != {"a": 2} and one != {"b": 1} and one != 5
    assert repr(PMap({2: "b", 1: "a"})) == "PMap({1: 'a', 2: 'b'})"


def test_iteration_does_not_depend_on_the_hash_seed() -> None:
    code = "from kraftlite.metadata.pmap import PMap; print(list(PMap({str(i): i for i in range(500)}).update({'x': 1}, ['0'])))"
    outputs = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."}
        outputs.add(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
    assert len(outputs) == 1


def test_one_change_of_a_large_map_copies_little() -> None:
    large = PMap({index: object() for index in range(20_000)})
    for index in range(2_000):  # copying 20,000 entries each time would take seconds
        large = large.update({index: object()})
    assert len(large) == 20_000
