"""Compares a node's view of the metadata with the one that the checkers replayed from the committed log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite.controller.core import ControllerCore
from kraftlite.metadata.image import MetadataImage
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.timeline.registry import LATEST

_SHOWN = 300


def image_difference(
    image: MetadataImage,
    state: MetadataState,
    known: MetadataImage | None = None,
    known_state: MetadataState | None = None,
) -> str | None:
    """The first difference in words, None when they agree.

    `known` was found to be equal to `known_state`: what is the same object as in those needs no second look.
    """
    seen = known if known is not None and known_state is not None else None

    def same(part: str, *model_parts: str) -> bool:
        return (
            seen is not None
            and getattr(seen, part) is getattr(image, part)
            and all(getattr(known_state, it) is getattr(state, it) for it in model_parts)
        )

    if not same("features", "features") and (found := _mapping("feature", image.features.finalized, state.features)):
        return found
    if not same("cluster", "brokers", "controllers"):
        found = _mapping("broker", image.cluster.brokers, state.brokers)
        found = found or _mapping("controller", image.cluster.controllers, state.controllers)
        if found:
            return found
    if not same("topics", "topics") and (found := _topics(image, state)):
        return found
    if not same("configs", "configs") and (found := _mapping("configs of", image.configs.resources, state.configs)):
        return found
    if not same("client_quotas", "quotas") and (found := _mapping("quotas of", image.client_quotas.entities, state.quotas)):
        return found
    if not same("scram", "credentials") and (found := _mapping("credential of", image.scram.credentials, state.credentials)):
        return found
    if not same("acls", "acls") and (found := _mapping("access control entry", image.acls.entries, state.acls)):
        return found
    if not same("delegation_tokens", "tokens") and (found := _mapping("token", image.delegation_tokens.tokens, state.tokens)):
        return found
    if image.producer_ids.next_producer_id != state.next_producer_id:
        return f"next producer id {image.producer_ids.next_producer_id} instead of {state.next_producer_id}"
    return None


def _mapping(what: str, found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> str | None:
    for key, value in expected.items():
        if key not in found:
            return f"{what} {key} is missing: {_short(value)}"
        if found[key] != value:
            return f"{what} {key} is {_short(found[key])} instead of {_short(value)}"
    for key in found:
        if key not in expected:
            return f"{what} {key} should not be there: {_short(found[key])}"
    return None


def _topics(image: MetadataImage, state: MetadataState) -> str | None:
    topics = image.topics
    names = {topic.name: topic_id for topic_id, topic in topics.by_id.items()}
    by_name = {name: topics.by_name[name].topic_id for name in topics.by_name}
    if found := _mapping("name", by_name, names):
        return f"topics by name and by id differ: {found}"
    expected = {topic_id: topic.name for topic_id, topic in state.topics.items()}
    if found := _mapping("topic", {topic_id: name for name, topic_id in names.items()}, expected):
        return found
    for topic_id, topic in state.topics.items():
        if found := _mapping(f"partition of {topic.name}", topics.by_id[topic_id].partitions, topic.partitions):
            return found
        if topics.by_name[topic.name] is not topics.by_id[topic_id]:
            return f"topic {topic.name} differs by name and by id"
    return None


def controller_difference(core: ControllerCore, state: MetadataState, epoch: int = LATEST) -> str | None:
    """Describe the first difference, as `image_difference` does, for a controller's state as read at a timeline epoch."""
    found = core.state
    cluster, replication = found.cluster, found.replication
    topics = dict(replication.topics.items(epoch))
    return (
        _mapping("feature", dict(found.features.finalized.items(epoch)), state.features)
        or _mapping("broker", dict(cluster.brokers.items(epoch)), state.brokers)
        or _mapping("controller", dict(cluster.controllers.items(epoch)), state.controllers)
        or _mapping(
            "topic", {it: info.name for it, info in topics.items()}, {it: topic.name for it, topic in state.topics.items()}
        )
        or _mapping(
            "id of topic", dict(replication.topic_ids.items(epoch)), {topic.name: it for it, topic in state.topics.items()}
        )
        or next(
            (
                difference
                for it, topic in state.topics.items()
                if (
                    difference := _mapping(
                        f"partition of {topic.name}", dict(topics[it].partitions.items(epoch)), topic.partitions
                    )
                )
            ),
            None,
        )
        or _mapping("configs of", dict(found.configs.configs.items(epoch)), state.configs)
        or _mapping("quotas of", dict(found.quotas.quotas.items(epoch)), state.quotas)
        or _mapping("credential of", dict(found.scram.credentials.items(epoch)), state.credentials)
        or _number("next producer id", found.producer_ids.next_producer_id.get(epoch), state.next_producer_id)
    )


def _number(what: str, found: int, expected: int) -> str | None:
    return None if found == expected else f"{what} {found} instead of {expected}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + " ..."
