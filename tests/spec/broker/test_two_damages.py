"""LG-53: a false log start beside damaged statements. Neither file vouches for the other, and the records are there."""

from __future__ import annotations

import pytest

from kraftlite.log.statements import STATEMENTS
from tests.harness.log_support import values
from tests.spec.broker.test_damaged_logs import A0, A1, COUNT, again, cut, filled, flip, opened, put


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("how", ["flipped", "cut", "garbage", "empty"])
async def test_lg_53_a_replica_that_others_have_too_begins_with_its_first_segment(how: str, clean: bool) -> None:
    """It stayed in the ISR on trust, and as leader it had lost what was below."""
    logs = await filled(clean=clean)
    disk, path = logs.bed.disk, f"/d1/{STATEMENTS}"
    put(disk, "/d1/log-start-offset-checkpoint", b"0\n1\na 0 20\n")
    put(disk, "/d1/recovery-point-offset-checkpoint", b"0\n1\na 0 48\n")
    if how == "flipped":
        flip(disk, path, 20)
    elif how == "cut":
        cut(disk, path, 0.1)
    else:
        put(disk, path, {"garbage": b"\xff\x00\n" * 70, "empty": b""}[how])
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=False, leader_epoch=2) == 2
    log = opened(logs, A0)
    assert (log.log_start_offset, log.leo, len(values(log))) == (0, 2 * COUNT, 2 * COUNT)
    await logs.dirs.close(broker_epoch=2)
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=False, leader_epoch=2) == 2
    assert opened(logs, A0).log_start_offset == 0, "it is stated now"


async def test_lg_53_the_only_copy_keeps_a_log_start_that_nobody_else_could_tell() -> None:
    """What was deleted must not come back: as in Kafka, the checkpoint is believed."""
    logs = await filled(clean=True)
    put(logs.bed.disk, "/d1/log-start-offset-checkpoint", b"0\n1\na 0 20\n")
    put(logs.bed.disk, f"/d1/{STATEMENTS}", b"\xff\x00\n" * 70)
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=True, leader_epoch=2) == 2
    assert opened(logs, A0).log_start_offset == 20
