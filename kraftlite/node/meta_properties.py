"""`meta.properties`: what says of a directory to which cluster and node it belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftlite.config.properties import format_properties, parse_properties
from kraftlite.model.ids import NodeId, is_reserved_uuid, uuid_from_str, uuid_to_str
from kraftlite.model.limits import KIB, MAX_INT32
from kraftlite.runtime.ports import Disk

META_PROPERTIES: Final = "meta.properties"
MAX_CLUSTER_ID_LENGTH: Final = 255
_MAX_BYTES: Final = 64 * KIB


def is_cluster_id(text: str) -> bool:
    """Kafka takes any text; what stands in files, messages and metrics is printable here, and not too long."""
    return 0 < len(text) <= MAX_CLUSTER_ID_LENGTH and text.isprintable() and not any(c.isspace() or c in "=#" for c in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Version 1. Source: BL-14, KIP-631, KIP-858."""

    cluster_id: str
    node_id: NodeId
    directory_id: UUID

    def to_map(self) -> dict[str, str]:
        return {
            "version": "1",
            "cluster.id": self.cluster_id,
            "node.id": str(self.node_id),
            "directory.id": uuid_to_str(self.directory_id),
        }

    def encode(self) -> bytes:
        """Write Java's properties: Kafka reads the bytes as Latin-1, so what is not ASCII is escaped."""
        text = "#\n" + format_properties(dict(sorted(self.to_map().items())))
        return "".join(it if it.isascii() else _escaped(it) for it in text).encode("ascii")


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def path_in(directory: str) -> str:
    return f"{directory}/{META_PROPERTIES}"


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """None when the directory is not formatted. Raises ValueError, naming file and value, when the file makes no sense."""
    path = path_in(directory)
    found = disk.stat(path)
    if found is not None and found.size > _MAX_BYTES:
        raise ValueError(f"{path} has {found.size} bytes; allowed are at most {_MAX_BYTES}, and formatting writes a few hundred")
    try:
        data = disk.read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found_properties = parse_properties(data.decode("utf-8", errors="replace"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return _parse(path, {it.key: it.value.strip() for it in found_properties})


def _shown(text: str) -> str:
    """Show the text of a file that may contain anything."""
    return text if text.isprintable() and len(text) <= 80 else repr(text[:80])


def _parse(path: str, values: dict[str, str]) -> MetaProperties:
    for key in ("version", "cluster.id", "node.id", "directory.id"):
        if not values.get(key):
            raise ValueError(f"{path}: {key} is missing")
    if values["version"] != "1":
        raise ValueError(f"{path}: version={_shown(values['version'])}: allowed is 1")
    node_id = values["node.id"]
    if not (node_id.isascii() and node_id.isdigit() and len(node_id) <= 10 and int(node_id) <= MAX_INT32):
        raise ValueError(f"{path}: node.id={_shown(node_id)}: allowed is a whole number from 0 to {MAX_INT32}")
    if not is_cluster_id(values["cluster.id"]):
        raise ValueError(f"{path}: cluster.id={_shown(values['cluster.id'])}: allowed is an id such as random-uuid prints")
    try:
        directory_id = uuid_from_str(values["directory.id"])
    except ValueError:
        told = _shown(values["directory.id"])
        raise ValueError(f"{path}: directory.id={told}: allowed are 22 characters such as random-uuid prints") from None
    if is_reserved_uuid(directory_id):
        raise ValueError(f"{path}: directory.id={values['directory.id']} is one of the reserved ids")
    return MetaProperties(cluster_id=values["cluster.id"], node_id=NodeId(int(values["node.id"])), directory_id=directory_id)
