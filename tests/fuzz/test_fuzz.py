"""What was found stays mended, and a short hunt with fixed seeds at every door. No test here looks at a clock."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz import configs, files
from tests.fuzz.campaign import Hunt
from tests.fuzz.cases import Case, Step, corpus, filled, read, template, write
from tests.fuzz.conftest import CPU_LIMIT_S, Nodes
from tests.fuzz.run import Session
from tests.fuzz.targets import opened

pytestmark = pytest.mark.xdist_group("fuzz")

KAFKA_CASES = 200
FILE_ROUNDS = 6
CONFIGURATIONS = 1500


@pytest.mark.parametrize("case", corpus("kafka"), ids=lambda it: it.name)
def test_what_was_found_at_the_client_door_stays_mended(nodes: Nodes, case: Case) -> None:
    failure = nodes.session().replay(case)
    if failure is not None:
        nodes.give_up()
        pytest.fail(f"{failure.kind}\n{failure.detail}\nas it was found:\n{case.story}")


@pytest.mark.cluster
@pytest.mark.parametrize("door", ["controller", "grpc", "metrics"])
def test_what_was_found_between_nodes_stays_mended(door: str) -> None:
    wrong = []
    cases = corpus(door)
    while cases:
        with opened("process") as target:
            session = Session(target, loop_limit_s=CPU_LIMIT_S, door=door)
            failure = None
            while cases and failure is None:
                case = cases.pop(0)
                failure = session.replay(case)
                if failure is not None:
                    wrong.append(f"{case.name}: {failure.kind}")
            if failure is None and (failure := session.close()) is not None:
                wrong.append(failure.detail)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_short_hunt_at_the_client_door(seed: int) -> None:
    hunt = Hunt("kafka", seed, "embedded", say=print, loop_limit_s=CPU_LIMIT_S, readers=False)
    assert not hunt.run(cases=KAFKA_CASES)
    assert hunt.cases == KAFKA_CASES


@pytest.mark.cluster
@pytest.mark.parametrize("door", ["controller", "grpc", "metrics"])
def test_a_short_hunt_between_nodes(door: str) -> None:
    assert not Hunt(door, 1, "process", say=print, loop_limit_s=CPU_LIMIT_S, readers=False).run(cases=60)


@pytest.mark.cluster
@pytest.mark.parametrize("door", ["sasl", "tls"])
def test_a_short_hunt_before_authentication(door: str) -> None:
    assert not Hunt(door, 1, "secured", say=print, loop_limit_s=CPU_LIMIT_S, readers=False).run(cases=40)


def test_a_short_hunt_in_the_files() -> None:
    wrong = [str(done) for done in islice(files.rounds(1), FILE_ROUNDS) if done.wrong is not None]
    assert not wrong, "\n".join(wrong)


def test_a_short_hunt_in_the_configuration() -> None:
    assert not configs.hunt(1, 0, print, cases=CONFIGURATIONS, slow=False)


def test_a_case_is_the_same_behind_its_file(tmp_path: Path) -> None:
    topic_id = bytes(range(16))
    places = {"fuzz-a": topic_id}
    data = b"\x00\x01" + topic_id + b"abc" * 500 + topic_id + b"\xff"
    case = Case("kafka", (Step(1, template(data, places), 1, (3,), "a 'note'\x1b", "grpc0"),), "it", "a story")
    write(case, tmp_path / "it.toml")
    found = read(tmp_path / "it.toml")
    assert filled(found.steps[0].data, places) == data
    assert (found.door, found.name, found.steps[0].cuts, found.steps[0].to) == ("kafka", "it", (3,), "grpc0")
    assert (tmp_path / "it.toml").stat().st_size < 600
