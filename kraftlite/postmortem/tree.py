"""The metadata as directories and files, with the names and contents that `kafka-metadata-shell` gives them.

    /local/{version,commitId}
    /image/provenance
    /image/{acls,clientQuotas,cluster,configs,delegationToken,features,producerIds,scram,topics}/…

Nodes are made when they are asked for: an image of any size costs what is listed of it.

Source: Kafka's `image/node` and `shell/node`, of 4.3; TO-22.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftlite import __version__
from kraftlite.metadata.features import METADATA_VERSION
from kraftlite.metadata.image import MetadataImage, QuotaEntity, TopicImage
from kraftlite.metadata.records import AccessControlEntryRecord, DelegationTokenRecord, UserScramCredentialRecord
from kraftlite.metadata.registrations import BrokerRegistration, ControllerRegistration, PartitionRegistration
from kraftlite.model.ids import uuid_from_str, uuid_to_str
from kraftlite.model.java_text import java_double
from kraftlite.model.messages.choices import ConfigResourceType
from kraftlite.postmortem import texts
from kraftlite.postmortem.glob import Glob, components

FINALIZED: Final = "finalized_"
MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_RESOURCES: Final = tuple(sorted(ConfigResourceType, key=lambda kind: kind.name, reverse=True))
"""The longer of two names of which one begins with the other comes first."""
_QUOTA_TYPES: Final = {"client-id": "clientId", "ip": "ip", "user": "user"}
_NOT_KNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class File:
    """`name` and `fields` where the content is a structure: what `history` and `diff` compare. `lines` are what `cat` prints."""

    text: str
    fields: texts.Fields = ()

    @property
    def is_directory(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Directory:
    """`names` in no particular order; `child` of a name that is none gives None. `value`: the part of the image that it shows,
    which two images share where nothing changed."""

    names: Callable[[], Iterable[str]]
    child: Callable[[str], Node | None]
    value: Any = None

    @property
    def is_directory(self) -> bool:
        return True

    def same_as(self, other: Directory) -> bool:
        """Return whether both show the same part of one image or of two; False when that is not known."""
        return self.value is not None and self.value is other.value

    def children(self) -> Iterator[tuple[str, Node]]:
        """In the order in which Kafka's shell lists them."""
        for name in texts.in_java_order(self.names()):
            found = self.child(name)
            if found is not None:
                yield name, found


Node = File | Directory


def root(image: MetadataImage) -> Directory:
    return _fixed({"local": lambda: _local(), "image": lambda: of_image(image)})


def of_image(image: MetadataImage) -> Directory:
    return _fixed(
        {
            "provenance": lambda: File(texts.provenance(image.provenance)),
            "features": lambda: _features(image),
            "cluster": lambda: _cluster(image),
            "topics": lambda: _topics(image),
            "configs": lambda: _configs(image),
            "clientQuotas": lambda: _quotas(image),
            "producerIds": lambda: _fixed({"nextProducerId": lambda: File(producer_id(image.producer_ids.next_producer_id))}),
            "acls": lambda: _fixed({"byId": lambda: _acls(image)}, image.acls),
            "scram": lambda: _scram(image),
            "delegationToken": lambda: _tokens(image),
        },
        image,
    )


def visit(start: Directory, path: str, directory: str = "/") -> Iterator[tuple[tuple[str, ...], Node]]:
    """The nodes that a path with wildcards names, in order, each with its absolute path."""
    yield from _visit([Glob(it) for it in components(path, directory)], start, ())


def _visit(globs: list[Glob], node: Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    if len(path) == len(globs):
        yield path, node
        return
    if isinstance(node, File):
        return
    glob = globs[len(path)]
    if glob.literal:
        found = node.child(glob.component)
        if found is not None:
            yield from _visit(globs, found, (*path, glob.component))
        return
    for name in texts.in_java_order(filter(glob.matches, node.names())):
        found = node.child(name)
        if found is not None:
            yield from _visit(globs, found, (*path, name))


def lines(node: Node, depth: int = 0) -> Iterator[str]:
    """The content of a node: of a directory, that of everything in it, indented."""
    if isinstance(node, File):
        yield "  " * depth + node.text
        return
    for name, child in node.children():
        yield f"{'  ' * depth}{name}:"
        yield from lines(child, depth + 1)


# --- parts of the image


def _local() -> Directory:
    return _fixed({"version": lambda: File(__version__), "commitId": lambda: File(_NOT_KNOWN)})


def _features(image: MetadataImage) -> Directory:
    finalized = image.features.finalized

    def names() -> list[str]:
        return ["metadataVersion", *(f"{FINALIZED}{name}" for name in finalized if name != METADATA_VERSION)]

    def child(name: str) -> Node | None:
        if name == "metadataVersion":
            return File(texts.metadata_version(image.features.metadata_version))
        if not name.startswith(FINALIZED):
            return None
        feature = name.removeprefix(FINALIZED)
        return File("0" if feature == METADATA_VERSION else str(finalized.get(feature, 0)))

    return Directory(names, child, image.features)


def _cluster(image: MetadataImage) -> Directory:
    cluster = image.cluster
    return _fixed(
        {
            "brokers": lambda: _by_number(cluster.brokers, broker),
            "controllers": lambda: _by_number(cluster.controllers, controller),
        },
        cluster,
    )


def _topics(image: MetadataImage) -> Directory:
    topics = image.topics

    def by_id(name: str) -> Node | None:
        try:
            found = topics.by_id.get(uuid_from_str(name))
        except ValueError:
            return None
        return None if found is None else topic(found)

    def by_name(name: str) -> Node | None:
        found = topics.by_name.get(name)
        return None if found is None else topic(found)

    return _fixed(
        {
            "byName": lambda: Directory(lambda: topics.by_name, by_name, topics.by_name),
            "byId": lambda: Directory(lambda: map(uuid_to_str, topics.by_id), by_id, topics.by_id),
        },
        topics,
    )


def topic(found: TopicImage) -> Directory:
    def partition(name: str) -> Node | None:
        if name == "name":
            return File(found.name)
        if name == "id":
            return File(uuid_to_str(found.topic_id))
        number = _number(name)
        registration = None if number is None else found.partitions.get(number)
        return None if registration is None else partition_file(registration)

    return Directory(lambda: ["name", "id", *map(str, found.partitions)], partition, found)


def _configs(image: MetadataImage) -> Directory:
    resources = image.configs.resources

    def child(name: str) -> Node | None:
        resource = _resource(name)
        found = None if resource is None else resources.get(resource)
        return None if found is None else _values(found, str)

    return Directory(lambda: (resource_name(*key) for key in resources), child, image.configs)


def resource_name(resource_type: int, name: str) -> str:
    """`TOPIC:orders`; `BROKER` for the default of all brokers."""
    known = ConfigResourceType._value2member_map_.get(resource_type)
    kind = "UNKNOWN" if known is None else ConfigResourceType(resource_type).name
    return f"{kind}:{name}" if name else kind


def _resource(name: str) -> tuple[int, str] | None:
    kind = next((kind for kind in _RESOURCES if name == kind.name or name.startswith(f"{kind.name}:")), None)
    return None if kind is None else (int(kind), name[len(kind.name) + 1 :])


def _quotas(image: MetadataImage) -> Directory:
    entities = {entity_name(entity): values for entity, values in image.client_quotas.entities.items()}

    def child(name: str) -> Node | None:
        found = entities.get(name)
        return None if found is None else _values(found, quota)

    return Directory(lambda: entities, child, image.client_quotas)


def producer_id(next_id: int) -> str:
    """Kafka shows -1 while none has been handed out."""
    return str(next_id or -1)


def quota(value: str) -> str:
    """A quota is kept as the shortest decimal text; Kafka shows a double."""
    return java_double(float(value))


def entity_name(entity: QuotaEntity) -> str:
    """`clientId(app)_user(alice)`. The default of all users is `userDefault`: Kafka's shell has no name for it."""
    parts = {part.type: part.name for part in entity}
    words = []
    for kind, word in _QUOTA_TYPES.items():
        if kind in parts:
            name = parts[kind]
            words.append(f"{word}Default" if name is None else f"{word}({_escaped(name)})")
    return "_".join(words)


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _scram(image: MetadataImage) -> Directory:
    credentials = image.scram.credentials

    def mechanism(number: int) -> Directory:
        def child(name: str) -> Node | None:
            found = credentials.get((name, number))
            return None if found is None else credential(found)

        return Directory(lambda: (name for name, kind in credentials if kind == number), child, image.scram)

    return _fixed({name: lambda number=number: mechanism(number) for name, number in MECHANISMS.items()}, image.scram)  # type: ignore[misc]


def _acls(image: MetadataImage) -> Directory:
    entries = image.acls.entries

    def child(name: str) -> Node | None:
        try:
            found = entries.get(uuid_from_str(name))
        except ValueError:
            return None
        return None if found is None else acl(found)

    return Directory(lambda: map(uuid_to_str, entries), child, image.acls)


def _tokens(image: MetadataImage) -> Directory:
    tokens = image.delegation_tokens.tokens

    def child(name: str) -> Node | None:
        found = tokens.get(name)
        return None if found is None else token(found)

    return Directory(lambda: tokens, child, image.delegation_tokens)


# --- kinds of directories


def _fixed(children: Mapping[str, Callable[[], Node]], value: Any = None) -> Directory:
    def child(name: str) -> Node | None:
        make = children.get(name)
        return None if make is None else make()

    return Directory(lambda: children, child, value)


def _values(found: Mapping[str, str], text: Callable[[str], str]) -> Directory:
    def child(name: str) -> Node | None:
        value = found.get(name)
        return None if value is None else File(text(value))

    return Directory(lambda: found, child, found)


def _by_number(found: Mapping[Any, Any], make: Callable[[Any], Node]) -> Directory:
    def child(name: str) -> Node | None:
        number = _number(name)
        value = None if number is None else found.get(number)
        return None if value is None else make(value)

    return Directory(lambda: map(str, found), child, found)


def partition_file(found: PartitionRegistration) -> File:
    return _structure("PartitionRegistration", texts.partition(found))


def broker(found: BrokerRegistration) -> File:
    return _structure("BrokerRegistration", texts.broker(found))


def controller(found: ControllerRegistration) -> File:
    return _structure("ControllerRegistration", texts.controller(found))


def credential(found: UserScramCredentialRecord) -> File:
    return _structure("ScramCredentialData", texts.credential(found))


def acl(found: AccessControlEntryRecord) -> File:
    fields = texts.acl(found)
    return File(f"StandardAcl[{', '.join(f'{name}={text}' for name, text in fields)}]", fields)


def token(found: DelegationTokenRecord) -> File:
    fields = texts.token(found)
    return File(texts.token_line(fields), fields)


def _structure(name: str, fields: texts.Fields) -> File:
    return File(texts.line(name, fields), fields)


def _number(name: str) -> int | None:
    """A number as Java's `Integer.parseInt` takes it, within reason."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    return int(name) if digits.isascii() and digits.isdecimal() and len(digits) <= 10 else None
