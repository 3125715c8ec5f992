"""The producers that a log remembers are those that its batches tell of (LG-16 to LG-20)."""

from __future__ import annotations

from kraftlite.log.batch import MAX_SEQUENCE, iter_batches
from kraftlite.log.log import Log
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import ProducersExpired
from kraftlite.sim.checkers.replica_facts import ReplicaChecker, may_forget_producers
from kraftlite.sim.checkers.replica_views import Batch, ReplicaView, Stamp
from kraftlite.simhost.host import SimHost


class ProducerStateKept(ReplicaChecker):
    """The batches of one producer id and epoch have, in every log, sequences without gap or repetition, whoever led. When a
    replica begins to lead or follow, and after each truncation, its producer state has the last batch of each producer, and no
    others. A producer that expires has written nothing for `producer.id.expiration.ms` by the broker's wall clock (LG-21)."""

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is ProducersExpired:
            for views in self.facts.views.values():
                view = views.get(node.node_id)
                if view is not None and view.tp == event.tp and view.log is not None:
                    self._check_expired(node, view, view.log)

    def _check_expired(self, node: SimHost, view: ReplicaView, log: Log) -> None:
        assert node.now is not None
        if any(self.world.cluster.wall_offset_ms.values()):
            return  # it may have been forgotten by a clock that was right no longer
        remembered = {it.producer_id for it in log.active_producers()}
        for producer_id, known in view.producers.items():
            last = next((it for it in reversed(view.batches) if it.producer_id == producer_id), known)  # it may be a marker
            if producer_id in remembered or not log.log_start_offset <= last.base_offset < log.leo:
                continue
            idle_ms = _idle_ms(node, log, last)
            if idle_ms is not None and idle_ms < log.config.producer_id_expiration_ms:
                self.fail(
                    f"{view.text} forgets producer {producer_id} {idle_ms} ms after {last}; it expires after "
                    f"{log.config.producer_id_expiration_ms} ms"
                )

    def on_replica(self, view: ReplicaView, was: Stamp | None) -> None:
        log = view.log
        if log is None:
            return
        forgets = may_forget_producers(self.world)
        for batch in view.batches[view.producers_end :]:
            self._follow(view, batch, forgets)
        view.producers_end = len(view.batches)
        if not forgets and (view.was_cut or was is None or view.leader is not was.leader):
            self._compare(view)

    def _follow(self, view: ReplicaView, batch: Batch, forgets: bool) -> None:
        if batch.producer_id < 0:
            return
        last = view.producers.get(batch.producer_id)
        if batch.is_control:
            if last is None or batch.producer_epoch > last.producer_epoch:
                view.producers[batch.producer_id] = batch  # the sequences begin anew (TP-23)
            return
        view.producers[batch.producer_id] = batch
        if last is None or forgets:
            return
        if batch.producer_epoch < last.producer_epoch:
            self.fail(f"{view.text} has {batch} of producer epoch {batch.producer_epoch} behind {last} of {last.producer_epoch}")
        if view.sparse_below > last.base_offset or last.next_offset <= self.facts.truth(view.key, view.tp).start:
            return  # what came between may be compacted away; or its leader began behind it, and did not know the producer
        expected = (last.last_sequence + 1) & MAX_SEQUENCE if batch.producer_epoch == last.producer_epoch else 0
        if batch.first_sequence >= 0 and batch.first_sequence != expected and not _begins_behind(view, last, batch):
            self.fail(f"{view.text} has {batch} behind {last}, the next sequence is {expected}")

    def _compare(self, view: ReplicaView) -> None:
        log = view.log
        assert log is not None
        remembered = {it.producer_id: (it.producer_epoch, it.last_sequence) for it in log.active_producers()}
        for producer_id, last in view.producers.items():
            known = remembered.get(producer_id)
            if known != (last.producer_epoch, last.last_sequence):
                if known is not None and known[0] == last.producer_epoch and _begins_behind(view, last, last):
                    continue  # a snapshot of the producers remembers the sequences that the log has no more
                idle_ms = _idle_ms(view.node, log, last) if known is None else None
                if idle_ms is not None and idle_ms >= log.config.producer_id_expiration_ms:
                    continue  # of a client whose clock was so far behind when it wrote
                self.fail(
                    f"{view.text} remembers (epoch, sequence) {known} of producer {producer_id}, "
                    f"its last batch is {last} up to sequence {last.last_sequence}"
                )
        if view.bases[:1] == [0] or log.leo == 0:
            strangers = sorted(it for it in remembered if it not in view.producers)
            if strangers:
                self.fail(f"{view.text} remembers the producers {strangers}, of whom it has no batch")


def _idle_ms(node: SimHost, log: Log, last: Batch) -> int | None:
    """Return how long ago the batch was written, by its own timestamp; None where it cannot be read, or is another one by now."""
    assert node.now is not None
    try:
        data = bytes(log.read(last.base_offset, last.size_bytes, up_to=log.leo))
    except OSError:
        return None  # of a disk that fails just now
    header, _ = next(iter_batches(data))
    return node.now.clock.wall_ms() - header.max_timestamp if header.crc == last.crc else None


def _begins_behind(view: ReplicaView, marker: Batch, batch: Batch) -> bool:
    """Return whether a marker of the batch's own epoch is the first of its producer in a log that begins behind others, or
    the first of this epoch where others are compacted away: markers of transaction.version 0 and 1 leave the epoch as it is, and
    the sequences go on behind what is not here."""
    if not marker.is_control or marker.producer_epoch != batch.producer_epoch:
        return False
    of = (it for it in view.batches if it.producer_id == batch.producer_id)
    if view.sparse_below:
        return next(it for it in of if it.producer_epoch == batch.producer_epoch) is marker
    return view.bases[:1] != [0] and next(of) is marker
