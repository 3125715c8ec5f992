"""Which entries of a DeleteTopics are decided without a right: those that are refused whoever asks, and no others."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftlite.controller.authorization_driver import _delete_topics
from kraftlite.model.messages import controller as m

X, Y = UUID(int=1), UUID(int=2)


class NoRights:
    def cluster(self, *_: Any, **__: Any) -> bool:
        return False

    topic = cluster


class Known:
    def name_of(self, topic_id: UUID) -> str | None:
        return {X: "x"}.get(topic_id)

    def exists(self, name: str) -> bool:
        return name == "x"


async def reaching(*selectors: tuple[str | None, UUID | None]) -> tuple[list[Any], list[Any]]:
    """What a client without any right brings as far as the controller, and what is refused before."""
    asked: list[m.DeleteTopicsRequest] = []

    async def handler(request: m.DeleteTopicsRequest) -> m.DeleteTopicsResponse:
        asked.append(request)
        return m.DeleteTopicsResponse(topics=())

    request = m.DeleteTopicsRequest(topics=tuple(m.TopicSelector(name=n, topic_id=i) for n, i in selectors), timeout_ms=1)
    rights: Any = NoRights()
    known: Any = Known()
    answer = await _delete_topics(handler, request, rights, known)
    return [(it.name, it.topic_id) for it in asked[0].topics], [it.topic_id or it.name for it in answer.topics]


@pytest.mark.parametrize(
    ("selectors", "refused"),
    [
        ([("x", None), ("x", None)], []),
        ([(None, X), (None, X)], []),
        ([("x", X)], []),
        ([(None, None)], []),
        ([(None, Y)], []),
        ([("", None), ("", None), (None, X)], [X]),
        ([("x", None), ("x", None), (None, X)], [X]),
        ([(None, X), (None, X), ("x", None)], ["x"]),
        ([(None, X), ("x", None)], [X, "x"]),
    ],
)
async def test_only_what_is_refused_anyway_needs_no_right(selectors: list[Any], refused: list[Any]) -> None:
    reached, told = await reaching(*selectors)
    assert told == refused
    assert len(reached) == len(selectors) - len(refused)
