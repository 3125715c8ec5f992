"""A broker says that replicas are yet to lead, so that metadata waits, and takes it back in every case."""

from __future__ import annotations

from tests.spec.broker.test_publisher import Scene


async def test_new_leaders_are_left_until_they_lead_and_never_once_the_publisher_is_closed() -> None:
    scene = Scene()
    await scene.started()
    assert not scene.publisher.elections_left()
    scene.replicas.elections_left = True
    assert scene.publisher.elections_left()
    scene.publisher.close()
    assert not scene.publisher.elections_left()
