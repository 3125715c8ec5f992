"""The controller's three offsets, and metadata transactions.

Source: Kafka's OffsetControlManager; KIP-868; CE-06, CE-08, CE-11, CE-12, CE-16.
"""

from __future__ import annotations

from kraftlite.metadata.records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from kraftlite.timeline.collections import TimelineValue
from kraftlite.timeline.registry import LATEST, TimelineRegistry


class OffsetControl:
    """Owns `write_offset` (next to be written, active only), `committed_offset` and `stable_offset` (inclusive; -1: none).

    stable <= committed. On the active controller there is always a timeline snapshot of the state at `committed_offset`, and
    one at `stable_offset`: control batches move offsets without changing state, so the snapshot may carry a lower epoch.
    """

    def __init__(self, registry: TimelineRegistry) -> None:
        self._registry = registry
        self.write_offset: int | None = None
        self.committed_offset = -1
        self.committed_epoch = -1
        self.stable_offset = -1
        self._transaction_start: TimelineValue[int | None] = TimelineValue(registry, None)
        self._transaction_name: TimelineValue[str | None] = TimelineValue(registry, None)
        self._loading_snapshot = False

    @property
    def active(self) -> bool:
        return self.write_offset is not None

    @property
    def transaction_start_offset(self) -> int | None:
        """The start of the open metadata transaction, as replayed so far (committed or not)."""
        return self._transaction_start.get()

    @property
    def read_epoch(self) -> int:
        """The timeline epoch that reads must use: they see nothing beyond the stable offset (CE-08)."""
        floor = self._registry.floor(self.stable_offset)
        return LATEST if floor is None else floor

    def activate(self, write_offset: int) -> None:
        assert not self.active, "activated while active"
        latest = self._registry.latest_epoch
        assert latest is None or latest <= self.committed_offset, "a standby has no uncommitted state"
        self.write_offset = write_offset
        self._registry.get_or_create_snapshot(self.committed_offset)

    def deactivate(self) -> None:
        """Throw away what was applied but not committed."""
        assert self.active, "deactivated while not active"
        self.write_offset = None
        floor = self._registry.floor(self.committed_offset)
        assert floor is not None, "an active controller has a timeline snapshot of the committed state"
        self._registry.revert_to(floor)
        if self._transaction_start.get() is None:
            for epoch in self._registry.epochs:  # a standby takes nothing back, and so does who is active again at once
                self._registry.delete_snapshot(epoch)

    def handle_scheduled(self, last_offset: int) -> None:
        """A batch that ends at `last_offset` was applied and given to raft."""
        assert self.write_offset is not None
        assert last_offset >= self.write_offset, f"{last_offset} was written before {self.write_offset}"
        self._registry.get_or_create_snapshot(last_offset)
        self.write_offset = last_offset + 1

    def handle_commit(self, last_offset: int, epoch: int) -> bool:
        """Everything up to `last_offset` is committed. Whether the stable offset moved."""
        self.committed_offset = last_offset
        self.committed_epoch = epoch
        stable = self.committed_offset
        floor = self._registry.floor(self.committed_offset)
        start = self._transaction_start.get(floor) if self.active and floor is not None else self._transaction_start.get()
        if start is not None:
            stable = min(start - 1, self.committed_offset)
        if stable <= self.stable_offset:
            return False
        self.stable_offset = stable
        keep = self._registry.floor(stable)
        if keep is not None:
            self._registry.delete_snapshots_up_to(keep)
            if not self.active and start is None:
                self._registry.delete_snapshot(keep)
        return True

    # --- metadata snapshots

    def begin_load_snapshot(self) -> None:
        self._loading_snapshot = True

    def end_load_snapshot(self, end_offset: int, epoch: int) -> None:
        """`end_offset` is exclusive, as in the metadata snapshot's id."""
        self._loading_snapshot = False
        self.committed_offset = self.stable_offset = end_offset - 1
        self.committed_epoch = epoch

    # --- records

    def _check_not_loading(self, record: object) -> None:
        if self._loading_snapshot:
            raise ValueError(f"{type(record).__name__} cannot appear within a metadata snapshot")

    def replay_begin(self, record: BeginTransactionRecord, offset: int) -> None:
        self._check_not_loading(record)
        start = self._transaction_start.get()
        if start is not None:
            raise ValueError(f"transaction begun at offset {offset} while the one begun at {start} is open")
        latest = self._registry.latest_epoch
        if latest is None or latest < offset - 1:
            self._registry.get_or_create_snapshot(offset - 1)
        self._transaction_start.set(offset)
        self._transaction_name.set(record.name)

    def replay_end(self, record: EndTransactionRecord, offset: int) -> None:
        self._check_not_loading(record)
        if self._transaction_start.get() is None:
            raise ValueError(f"transaction ended at offset {offset}, but none is open")
        self._transaction_start.set(None)
        self._transaction_name.set(None)

    def replay_abort(self, record: AbortTransactionRecord, offset: int) -> None:
        """Bring back the state before Begin (CE-16). By new writes, so that losing the abort itself brings it back again."""
        self._check_not_loading(record)
        start = self._transaction_start.get()
        if start is None:
            raise ValueError(f"transaction aborted at offset {offset}, but none is open")
        before = self._registry.floor(start - 1)
        assert before is not None, f"no timeline snapshot from before the transaction at {start}"
        self._registry.restore(before)
        self._transaction_start.set(None)
        self._transaction_name.set(None)
