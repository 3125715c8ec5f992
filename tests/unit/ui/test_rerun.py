"""What if, from the page: who may run it again, what is refused, and that the process ends."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from kraftlite.sim.plans import text_of
from kraftlite.ui.acts import Refused
from kraftlite.ui.app import TapePage
from kraftlite.ui.guard import Tokens
from kraftlite.ui.rerun import MAX_CHANGES, NoRerun, Reruns, memory_of
from tests.harness.recordings import SPLIT, split
from tests.harness.ui import Answer, ask

TOKENS = Tokens("o" * 22, "v" * 22)


def reruns(**more: Any) -> Reruns:
    return Reruns(text_of(SPLIT), "0", **more)


@pytest.fixture(scope="module")
def tape() -> dict[str, Any]:
    """Made before there is a loop: a simulation has its own."""
    return split()[1]


async def post(page: TapePage, value: Any, token: str | None = TOKENS.operator) -> Answer:
    headers = {
        "Host": "127.0.0.1:8088",
        "Authorization": f"Bearer {token}",
        "X-Kraftlite": "1",
        "Content-Type": "application/json",
    }
    return await ask(page.guard, "/api/v1/what-if", method="POST", headers=headers, body=json.dumps(value).encode())


async def test_a_run_is_run_again_with_a_change(tape: dict[str, Any]) -> None:
    """As the command tells it, with a tape of the changed run; one at a time."""
    page = TapePage(tape, TOKENS, 8088, reruns())
    first = asyncio.create_task(post(page, {"changes": [[1, "3000 isolate controller for 1000"]]}))
    await asyncio.sleep(0)
    second = await post(page, {"changes": [[1, None]]})
    assert second.status == 429
    found = (await first).json
    assert found["as_it_was"]["two_active_controllers_ms"] > 500 and found["what_if"]["two_active_controllers_ms"] == 0
    assert found["tape"]["cluster"]["recording"]["source"] == "simulated" and found["parting"]["at_ms"] > 5000
    same = [at for at, _ in tape["frames"] if at < found["parting"]["at_ms"]]
    assert [at for at, _ in found["tape"]["frames"]][: len(same)] == same, "both are the same until they part"


async def test_a_viewer_may_look_and_not_run(tape: dict[str, Any]) -> None:
    page = TapePage(tape, TOKENS, 8088, reruns())
    refused = await post(page, {"changes": [[1, None]]}, TOKENS.viewer)
    assert refused.status == 403 and "looking only" in refused.json["error"]
    for token, may in ((TOKENS.operator, True), (TOKENS.viewer, False)):
        headers = {"Host": "127.0.0.1:8088", "Authorization": f"Bearer {token}"}
        about = (await ask(page.guard, "/api/v1/cluster", headers=headers)).json["what_if"]
        assert about["may"] is may and about["faults"] == ["3000 isolate controller for 6000"]
    alone = TapePage(tape, TOKENS, 8088)
    assert (await post(alone, {"changes": [[1, None]]})).status == 409


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "nothing is changed"),
        ({"seed": True}, "seed: allowed is"),
        ({"seed": -1}, "seed: allowed is"),
        ({"changes": "x"}, "changes: allowed is a list"),
        ({"changes": [[1, None]] * (MAX_CHANGES + 1)}, "changes: allowed is a list"),
        ({"changes": [[1, None], [1, None]]}, "each once"),
        ({"changes": [["1", None]]}, "pairs of the number"),
        ({"changes": [[1, 5]]}, "pairs of the number"),
        ({"changes": [[1, " "]]}, "fault 1: allowed is a line"),
        ({"changes": [[1, "x" * 201]]}, "fault 1: allowed is a line"),
        ({"changes": [[1, "1 dance 4"]]}, "unknown fault 'dance'"),
        ({"changes": [[9, "1 kill 4"]]}, "the run has 1 faults"),
        ({"changes": [[2, "1 kill 99"]]}, "there is no node 99"),
    ],
)
async def test_what_it_cannot_do_is_said(given: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        await reruns().run(given, operator=True)
    assert refused.value.status in (400, 409)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the memory of a process in /proc")
@pytest.mark.parametrize("mib", [20, 50])
async def test_a_run_that_takes_too_much_memory_is_ended_and_leaves_the_place_free(mib: int) -> None:
    """Seen by what it has, or refused by the system."""
    small = reruns(max_memory=mib << 20)
    for _ in range(2):
        with pytest.raises(Refused, match=f"more than {mib} MiB of memory: it was ended") as refused:
            await small.run({"changes": [[1, None]]}, operator=True)
        assert refused.value.status == 409


def test_the_memory_of_a_process_that_is_not_there_is_not_known() -> None:
    assert memory_of(1 << 30) is None


async def test_a_run_that_takes_too_long_is_ended_and_leaves_the_place_free() -> None:
    slow = reruns(patience_s=0.05)
    for _ in range(2):
        with pytest.raises(Refused, match=r"took longer than 0\.05 s"):
            await slow.run({"changes": [[1, None]]}, operator=True)


@pytest.mark.parametrize("text", ["", "{}", '{"seed": 1, "shape": "7+9"}', '{"seed": 1, "faults": ["1 dance 2"]}'])
def test_what_is_no_plan_cannot_be_run_again(text: str) -> None:
    with pytest.raises(NoRerun):
        Reruns(text, "0")
