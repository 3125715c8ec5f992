"""`meta.properties`: what says of a directory to which cluster and node it belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftlite.model.ids import NodeId, is_reserved_uuid, uuid_from_str, uuid_to_str
from kraftlite.runtime.ports import Disk

META_PROPERTIES: Final = "meta.properties"


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
        return ("#\n" + "".join(f"{key}={value}\n" for key, value in sorted(self.to_map().items()))).encode()


def path_in(directory: str) -> str:
    return f"{directory}/{META_PROPERTIES}"


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """None when the directory is not formatted. Raises ValueError, naming file and value, when the file makes no sense."""
    path = path_in(directory)
    try:
        data = disk.read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    values: dict[str, str] = {}
    for line in data.decode("utf-8", errors="replace").splitlines():
        text = line.strip()
        if text and not text.startswith(("#", "!")):
            key, _, value = text.partition("=")
            values[key.strip()] = value.strip()
    return _parse(path, values)


def _parse(path: str, values: dict[str, str]) -> MetaProperties:
    for key in ("version", "cluster.id", "node.id", "directory.id"):
        if not values.get(key):
            raise ValueError(f"{path}: {key} is missing")
    if values["version"] != "1":
        raise ValueError(f"{path}: version={values['version']}: allowed is 1")
    if not values["node.id"].isdecimal():
        raise ValueError(f"{path}: node.id={values['node.id']}: allowed is a whole number of at least 0")
    try:
        directory_id = uuid_from_str(values["directory.id"])
    except ValueError as error:
        raise ValueError(f"{path}: directory.id: {error}") from None
    if is_reserved_uuid(directory_id):
        raise ValueError(f"{path}: directory.id={values['directory.id']} is one of the reserved ids")
    return MetaProperties(cluster_id=values["cluster.id"], node_id=NodeId(int(values["node.id"])), directory_id=directory_id)
