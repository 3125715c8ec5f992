"""Watches what one test did to the cluster: for its report if it fails, and so that no fault of it reaches the next test."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftlite.testing.errors import ClusterError

if TYPE_CHECKING:
    from kraftlite.testing.backends import Backend
    from kraftlite.testing.cluster import SyncCluster


class Watch:
    """Watches the cluster from before a test's other fixtures to after them. The session's cluster is attached when the test
    first uses it."""

    def __init__(self, *, record: bool = False) -> None:
        """`record`: everything that the test does to its clusters is recorded."""
        self._record = record
        self._backend: Backend | None = None
        self._before: frozenset[str] = frozenset()
        self._own: list[str] = []
        self._clusters: list[SyncCluster] = []

    def attach(self, backend: Backend) -> None:
        """Topics that are made from here on are the test's. Idempotent. Raises ClusterError."""
        if self._backend is None:
            self._backend = backend
            self._before = frozenset(backend.topics())
            self._begin(backend)

    def add_topic(self, name: str) -> None:
        """The test's, even when it is not there: its creation failed, or somebody deleted it."""
        self._own.append(name)

    def add_cluster(self, cluster: SyncCluster) -> None:
        """One that the test has for itself: it is only shown."""
        from kraftlite.testing.backends import Embedded

        self._clusters.append(cluster)
        self._begin(Embedded(cluster))

    def _begin(self, backend: Backend) -> None:
        from kraftlite.testing.backends import Embedded

        if self._record and isinstance(backend, Embedded):
            backend.cluster.record()

    def recordings(self) -> list[bytes]:
        """The recordings of the test's clusters that still run, that of the session first."""
        from kraftlite.testing.backends import Embedded

        session = [self._backend.cluster] if isinstance(self._backend, Embedded) else []
        found = []
        for cluster in [*session, *self._clusters]:
            with contextlib.suppress(ClusterError):  # it was closed
                found.append(cluster.recording())
        return found

    def report(self) -> str:
        """The clusters as they are now. Never raises: a cluster that does not tell is said to be so."""
        from kraftlite.testing.backends import Embedded

        parts = []
        if self._backend is not None:
            parts.append(_told(self._backend, self._before, self._own))
        parts += [_told(Embedded(cluster), frozenset(), ()) for cluster in self._clusters]
        return "\n\n".join(parts)

    def leaks(self) -> str | None:
        """Heals the session's cluster. What was wrong with it, or None."""
        from kraftlite.testing.backends import Embedded
        from kraftlite.testing.chaos import heal_all

        if not isinstance(self._backend, Embedded):
            return None
        cluster = self._backend.cluster
        before = "; ".join(cluster.troubles())
        try:
            found = "; ".join(heal_all(cluster))
        except ClusterError as error:
            return f"the test left its cluster broken: {before or 'no node is down'}; and it could not be healed: {error}"
        return f"the test left its cluster broken: {found} (healed now)" if found else None


def _told(backend: Backend, before: frozenset[str], own: Sequence[str]) -> str:
    from kraftlite.testing.backends import INTERNAL

    try:
        names = backend.topics()
    except (ClusterError, TimeoutError):
        names = ()  # no node runs, or the thread of the nodes hangs: `describe` says so
    made = [it for it in names if it not in before and not it.startswith(INTERNAL) and it not in own]
    try:
        return "\n".join(backend.describe([*own, *made]))
    except (ClusterError, TimeoutError) as error:
        return f"the cluster does not tell how it is: {type(error).__name__}: {error}"
