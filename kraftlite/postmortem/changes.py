"""The changes that records made, path by path: the history of a path, and the differences between two images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from kraftlite.log.control import LeaderChange
from kraftlite.metadata import records
from kraftlite.metadata.features import METADATA_VERSION
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.registrations import BrokerRegistration, ControllerRegistration, PartitionRegistration
from kraftlite.model.ids import uuid_to_str
from kraftlite.model.messages.choices import ConfigResourceType
from kraftlite.postmortem import texts, tree
from kraftlite.postmortem.glob import Glob, touches
from kraftlite.postmortem.reading import Entry
from kraftlite.postmortem.tree import Directory, File, Node

Path = tuple[str, ...]
Found = tuple[Path, File | None, File | None]
_NOT_COMPARED: Final = frozenset({"provenance", "byId"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that one record changed. `before` None: it was not there; `after` None: it is gone.

    `controller`: the node that wrote the record, the leader of its epoch; None where the log does not say who that was.
    """

    entry: Entry
    path: Path
    before: File | None
    after: File | None
    controller: int | None

    @property
    def what(self) -> str:
        return described(self.before, self.after)

    @property
    def record(self) -> str:
        return type(self.entry.record).__name__.removesuffix("Record")


def described(before: File | None, after: File | None) -> str:
    """`leader 1 → 2, leaderEpoch 3 → 4`, or what it was and is."""
    if after is None:
        return "removed" if before is None else f"removed: {before.text}"
    if before is None:
        return f"created: {after.text}"
    if before.fields and after.fields:
        return ", ".join(texts.differences(before.fields, after.fields)) or "nothing changed"
    return "nothing changed" if before.text == after.text else f"{before.text} → {after.text}"


def history(entries: Iterable[Entry], image: MetadataImage, path: Sequence[str]) -> Iterator[Change]:
    """The changes of what `path`, with wildcards, names, and of what is below it. `image`: the state before the first entry."""
    follower = _Follower(image, [Glob(it) for it in path])
    for entry in entries:
        yield from follower.feed(entry)


def differences(before: Node | None, after: Node | None, path: Path = ()) -> Iterator[Found]:
    """The files of two trees that are not the same, by path. Provenance is left out, and topics by their ids."""
    if isinstance(before, Directory) and isinstance(after, Directory) and before.same_as(after):
        return
    if isinstance(before, File) or isinstance(after, File):
        old = before if isinstance(before, File) else None
        new = after if isinstance(after, File) else None
        if old is None or new is None or old.text != new.text:
            yield path, old, new
        return
    names = {name for node in (before, after) if node is not None for name in node.names()}
    for name in texts.in_java_order(names - _NOT_COMPARED if path[:1] == ("image",) and len(path) <= 2 else names):
        old_child = None if before is None else before.child(name)
        new_child = None if after is None else after.child(name)
        yield from differences(old_child, new_child, (*path, name))


class _Follower:
    """The part of the state that the path is about, record by record, over the image from which it began."""

    def __init__(self, image: MetadataImage, globs: list[Glob]) -> None:
        self._image = image
        self._globs = globs
        self._leaders: dict[int, int] = {}
        self._topics: dict[UUID, str] = {}
        self._removed: set[UUID] = set()
        self._state: dict[Any, Any] = {}
        """The values that records have set since; None for those that they removed."""

    def feed(self, entry: Entry) -> Iterator[Change]:
        record = entry.record
        if isinstance(record, LeaderChange):
            self._leaders[entry.epoch] = int(record.leader_id)
        found = _CHANGES.get(type(record))
        if found is None:
            return
        for path, before, after in found(self, record):
            yield Change(entry=entry, path=path, before=before, after=after, controller=self._leaders.get(entry.epoch))

    def _wanted(self, *path: str) -> Path | None:
        full = ("image", *path)
        return full if touches(self._globs, full) else None

    def _put(self, key: Any, before: Any, after: Any, make: Callable[[Any], File]) -> tuple[File | None, File | None]:
        known = self._state.get(key, before)
        self._state[key] = after
        return None if known is None else make(known), None if after is None else make(after)

    # --- topics

    def _name(self, topic_id: UUID) -> str | None:
        found = self._topics.get(topic_id)
        if found is not None:
            return found
        topic = self._image.topics.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def _topic_paths(self, name: str, topic_id: UUID, *below: str) -> list[Path]:
        both = (("byName", name), ("byId", uuid_to_str(topic_id)))
        return [path for kind, key in both if (path := self._wanted("topics", kind, key, *below)) is not None][:1]

    def topic(self, record: records.TopicRecord) -> Iterator[Found]:
        self._topics[record.topic_id] = record.name
        for path in self._topic_paths(record.name, record.topic_id):
            yield path, None, File(uuid_to_str(record.topic_id))

    def topic_removed(self, record: records.RemoveTopicRecord) -> Iterator[Found]:
        name = self._name(record.topic_id)
        if name is None:
            return
        self._removed.add(record.topic_id)
        for path in self._topic_paths(name, record.topic_id):
            yield path, File(uuid_to_str(record.topic_id)), None
        resource = tree.resource_name(int(ConfigResourceType.TOPIC), name)
        kept = {key for key in self._state if key[0] == "config" and key[1] == (int(ConfigResourceType.TOPIC), name)}
        known = {("config", (2, name), key) for key in self._image.configs.get(2, name)}
        for key in sorted(kept | known):
            wanted = self._wanted("configs", resource, key[2])
            old, new = self._put(key, self._image.configs.get(2, name).get(key[2]), None, File)
            if wanted is not None and old is not None:
                yield wanted, old, new

    def partition(self, record: records.PartitionRecord | records.PartitionChangeRecord) -> Iterator[Found]:
        name = self._name(record.topic_id)
        paths = [] if name is None else self._topic_paths(name, record.topic_id, str(record.partition))
        if not paths:
            return
        key = ("partition", record.topic_id, record.partition)
        before: PartitionRegistration | None
        before = self._state[key] if key in self._state else self._image.topics.partition(record.topic_id, record.partition)
        if isinstance(record, records.PartitionRecord):
            after = PartitionRegistration.from_record(record)
        elif before is not None:
            after = before.merge(record)
        else:
            return
        yield (paths[0], *self._put(key, before, after, tree.partition_file))

    def elr_cleared(self, record: records.ClearElrRecord) -> Iterator[Found]:
        """Tell which partitions of a topic, or of all, had eligible leader replicas or knew who led last: now they do not."""
        changed: dict[UUID, dict[int, PartitionRegistration]] = {}
        for key, value in self._state.items():
            if key[0] == "partition":
                changed.setdefault(key[1], {})[key[2]] = value
        for topic_id, name in ({topic.topic_id: topic.name for topic in self._image.topics} | self._topics).items():
            if record.topic_name not in ("", name) or topic_id in self._removed or not self._topic_paths(name, topic_id):
                continue
            topic = self._image.topics.topic_by_id(topic_id)
            known = {**({} if topic is None else topic.partitions), **changed.get(topic_id, {})}
            for index, before in sorted(known.items()):
                after, paths = before.without_elr(), self._topic_paths(name, topic_id, str(index))
                if after is not None and paths:
                    yield (paths[0], *self._put(("partition", topic_id, index), before, after, tree.partition_file))

    # --- nodes

    def broker(self, record: Any) -> Iterator[Found]:
        key = ("broker", record.broker_id)
        before: BrokerRegistration | None
        before = self._state[key] if key in self._state else self._image.cluster.broker(record.broker_id)
        after: BrokerRegistration | None = None
        if isinstance(record, records.RegisterBrokerRecord):
            after = BrokerRegistration.from_record(record)
        elif isinstance(record, records.BrokerRegistrationChangeRecord):
            if before is None:
                return
            after = before.merge(record)
        elif isinstance(record, records.FenceBrokerRecord | records.UnfenceBrokerRecord):
            if before is None:
                return
            after = replace(before, fenced=isinstance(record, records.FenceBrokerRecord))
        changed = self._put(key, before, after, tree.broker)
        path = self._wanted("cluster", "brokers", str(record.broker_id))
        if path is not None:
            yield (path, *changed)

    def controller(self, record: records.RegisterControllerRecord) -> Iterator[Found]:
        before = self._image.cluster.controllers.get(record.controller_id)
        changed = self._put(
            ("controller", record.controller_id), before, ControllerRegistration.from_record(record), tree.controller
        )
        path = self._wanted("cluster", "controllers", str(record.controller_id))
        if path is not None:
            yield (path, *changed)

    # --- the rest: one value under one path

    def _value(
        self, path: Sequence[str], key: Any, before: Any, after: Any, make: Callable[[Any], File] = File
    ) -> Iterator[Found]:
        changed = self._put(key, before, after, make)
        wanted = self._wanted(*path)
        if wanted is not None:
            yield (wanted, *changed)

    def config(self, record: records.ConfigRecord) -> Iterator[Found]:
        resource = (record.resource_type, record.resource_name)
        path = ("configs", tree.resource_name(*resource), record.name)
        before = self._image.configs.get(*resource).get(record.name)
        return self._value(path, ("config", resource, record.name), before, record.value)

    def quota(self, record: records.ClientQuotaRecord) -> Iterator[Found]:
        path = ("clientQuotas", tree.entity_name(record.entity), record.key)
        before = self._image.client_quotas.get(record.entity).get(record.key)
        return self._value(path, ("quota", record.entity, record.key), before, record.value, lambda it: File(tree.quota(it)))

    def scram(self, record: records.UserScramCredentialRecord | records.RemoveUserScramCredentialRecord) -> Iterator[Found]:
        mechanism = next((name for name, kind in tree.MECHANISMS.items() if kind == record.mechanism), str(record.mechanism))
        after = record if isinstance(record, records.UserScramCredentialRecord) else None
        before = self._image.scram.credentials.get((record.name, record.mechanism))
        key = ("scram", record.name, record.mechanism)
        return self._value(("scram", mechanism, record.name), key, before, after, tree.credential)

    def acl(self, record: records.AccessControlEntryRecord | records.RemoveAccessControlEntryRecord) -> Iterator[Found]:
        after = record if isinstance(record, records.AccessControlEntryRecord) else None
        before = self._image.acls.entries.get(record.id)
        return self._value(("acls", "byId", uuid_to_str(record.id)), ("acl", record.id), before, after, tree.acl)

    def token(self, record: records.DelegationTokenRecord | records.RemoveDelegationTokenRecord) -> Iterator[Found]:
        after = record if isinstance(record, records.DelegationTokenRecord) else None
        before = self._image.delegation_tokens.tokens.get(record.token_id)
        return self._value(("delegationToken", record.token_id), ("token", record.token_id), before, after, tree.token)

    def feature(self, record: records.FeatureLevelRecord) -> Iterator[Found]:
        name, before = record.name, self._image.features.finalized.get(record.name)
        if name == METADATA_VERSION:
            path = ("features", "metadataVersion")
            return self._value(path, ("feature", name), before, record.level, lambda it: File(texts.metadata_version(it)))
        after = record.level or None
        path = ("features", f"{tree.FINALIZED}{name}")
        return self._value(path, ("feature", name), before, after, lambda it: File(str(it)))

    def producer_ids(self, record: records.ProducerIdsRecord) -> Iterator[Found]:
        before = self._image.producer_ids.next_producer_id
        path = ("producerIds", "nextProducerId")
        return self._value(path, ("producer_ids",), before, record.next_producer_id, lambda it: File(tree.producer_id(it)))


_CHANGES: Final[Mapping[type[Any], Callable[[_Follower, Any], Iterator[Found]]]] = {
    records.TopicRecord: _Follower.topic,
    records.RemoveTopicRecord: _Follower.topic_removed,
    records.PartitionRecord: _Follower.partition,
    records.PartitionChangeRecord: _Follower.partition,
    records.ClearElrRecord: _Follower.elr_cleared,
    records.RegisterBrokerRecord: _Follower.broker,
    records.UnregisterBrokerRecord: _Follower.broker,
    records.BrokerRegistrationChangeRecord: _Follower.broker,
    records.FenceBrokerRecord: _Follower.broker,
    records.UnfenceBrokerRecord: _Follower.broker,
    records.RegisterControllerRecord: _Follower.controller,
    records.ConfigRecord: _Follower.config,
    records.ClientQuotaRecord: _Follower.quota,
    records.UserScramCredentialRecord: _Follower.scram,
    records.RemoveUserScramCredentialRecord: _Follower.scram,
    records.AccessControlEntryRecord: _Follower.acl,
    records.RemoveAccessControlEntryRecord: _Follower.acl,
    records.DelegationTokenRecord: _Follower.token,
    records.RemoveDelegationTokenRecord: _Follower.token,
    records.FeatureLevelRecord: _Follower.feature,
    records.ProducerIdsRecord: _Follower.producer_ids,
}
