"""Members of a classic group that support very many protocols."""

from __future__ import annotations

import time

from tests.harness.group_world import GroupWorld


def test_cp_29_members_with_many_protocols_do_not_hold_the_loop() -> None:
    """Each name of each member was looked for in every other member: a few hundred members with a thousand protocols each, of
    which one is common, stopped the broker for hours."""
    w = GroupWorld()
    same = {**{f"p{number}": b"" for number in range(400)}, "common": b""}
    other = {**{f"q{number}": b"" for number in range(400)}, "common": b""}
    began = time.process_time()
    requests = [w.join(protocols=same) for _ in range(40)] + [w.join(protocols=other), w.join(protocols=same)]
    w.advance(12_000)
    assert {w.answers[request].protocol_name for request in requests} == {"common"}
    assert time.process_time() - began < 3
