"""Requests about the log directories of a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.log_dirs import alter_replica_log_dir
from kraftlite.model.errors import ErrorCode
from kraftlite.model.method import Method
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.build import Node
from kraftlite.runtime.ports import Handlers, route


@dataclass(frozen=True, slots=True)
class AlterDirAsk:
    """Have the broker's replica in the directory at `path`."""

    tp: TopicPartition
    path: str


@dataclass(frozen=True, slots=True)
class AlterDirTold:
    error: ErrorCode


ALTER_DIR: Final = Method("Client", "AlterReplicaLogDirs", AlterDirAsk, AlterDirTold)


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    service = _Service(node.broker.context)
    return dict((route(ALTER_DIR, service.alter),))


class _Service:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def alter(self, ask: AlterDirAsk) -> AlterDirTold:
        return AlterDirTold(alter_replica_log_dir(self._context, ask.tp, ask.path))
