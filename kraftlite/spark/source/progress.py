"""A streaming query's progress, published as the offsets of a consumer group for those who look at lag; it is never read back.

A query's id is known in its tasks only, and the process that plans is asked what to do next while no task runs. So the first task
of the first batches commits where its batch starts, with a token beside the offsets; the planner finds its group by that, and
goes on by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import client_for
from kraftlite.client.settings import ClientSettings
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.offsets import Offsets, log

PATIENCE_MS: Final = 2_000
"""For one commit. Without a coordinator the query goes on all the same, and the next batch tries again."""
PAUSE_S: Final = 5.0
"""Behind a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The offsets up to which the batches before this one have read."""

    offsets: Mapping[TopicPartition, int]
    group: str
    """The prefix to which the query's id is appended."""
    token: str


def publish(settings: ClientSettings, group: str, offsets: Mapping[TopicPartition, int], token: str) -> bool:
    """Commit a group's offsets; whether it worked. The query's own progress is in its checkpoint, so a failure is told and not
    fatal."""
    known = {tp: offset for tp, offset in offsets.items() if offset >= 0}
    if not known:
        return True
    try:
        client_for(_hasty(settings)).commit_offsets(group, known, metadata=token)
    except ClientError as error:
        log.warning("the offsets of group %s were not committed: %s", group, error)
        return False
    return True


def find_group(settings: ClientSettings, prefix: str, token: str) -> str | None:
    """The group that a task of this query has committed to with `token`."""
    client = client_for(_hasty(settings))
    try:
        for group in client.list_groups():
            if group.startswith(f"{prefix}-") and token in client.committed_metadata(group):
                return group
    except ClientError as error:
        log.warning("the query's group was not found: %s", error)
    return None


def _hasty(settings: ClientSettings) -> ClientSettings:
    return replace(settings, retry_timeout_ms=min(settings.retry_timeout_ms, PATIENCE_MS))


class Publisher:
    """The publisher of one query, in the process that plans it. It commits in a thread of its own, so that no batch waits for a
    coordinator.

    `group` None: `<prefix>-<query id>`, which is looked for once a task was told to commit to it (`expect`).
    """

    def __init__(
        self,
        settings: ClientSettings,
        group: str | None,
        prefix: str,
        token: str,
        *,
        commit: Callable[[ClientSettings, str, Offsets, str], bool] = publish,
        find: Callable[[ClientSettings, str, str], str | None] = find_group,
    ) -> None:
        self._settings = settings
        self._prefix = prefix
        self._token = token
        self._commit = commit
        self._find = find
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        # Under the condition:
        self._group = group
        self._expected = False
        self._published: Offsets = {}
        self._wanted: Offsets | None = None
        self._busy = False
        self._not_before = 0.0

    def expect(self, offsets: Offsets) -> Progress | None:
        """Return what the first task of a batch is to commit; None: nothing, because the group is known here."""
        with self._change:
            self._expected = True
            return None if self._group is not None else Progress(offsets=offsets, group=self._prefix, token=self._token)

    def publish(self, done: Offsets, *, wait: bool) -> None:
        """In order, the newest only. `wait`: until it is committed or has failed; for when there is nothing else to do, since
        Spark may end this process at any time."""
        with self._change:
            if self._group is None and not self._expected:
                return
            if done != self._published and time.monotonic() >= self._not_before:
                self._wanted = dict(done)
                self._change.notify_all()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="publish", daemon=True)
                    self._thread.start()
            if wait:
                self._change.wait_for(lambda: self._wanted is None and not self._busy, timeout=2 * PATIENCE_MS / 1000)

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._wanted is not None)
                assert self._wanted is not None
                done, self._wanted, self._busy = self._wanted, None, True
            group, worked = self._group, False
            try:
                group = group or self._find(self._settings, self._prefix, self._token)
                worked = group is not None and self._commit(self._settings, group, done, self._token)
            finally:
                with self._change:
                    self._group, self._busy = group, False
                    if worked:
                        self._published = done
                    else:
                        self._not_before = time.monotonic() + PAUSE_S
                    self._change.notify_all()
