"""Opening a log: its directory, the contents of its files, and the state that its parts begin with. Source: LG-26 to LG-30."""

from __future__ import annotations

import weakref

from kraftlite.log.context import Hooked, LogContext, OpenLog, draw_jitter
from kraftlite.log.deletion import DeletedFiles
from kraftlite.log.directory import take_directory
from kraftlite.log.epoch_file import EpochFile
from kraftlite.log.recovery import Loader
from kraftlite.runtime.trace import is_heard
from kraftlite.runtime.trace.log import LogOpened


def open_files(opening: OpenLog, log: weakref.ref[Hooked]) -> tuple[LogContext, EpochFile, DeletedFiles]:
    """Load what is there, or create it; raises what `Log` says.

    A new directory gets no segment file yet, and nothing in it is durable before its first record.
    """
    owner = take_directory(opening)
    loader = Loader(
        disk=opening.disk,
        directory=opening.directory,
        tp=opening.tp,
        config=opening.config,
        wall_ms=opening.wall_ms,
        jitter=lambda: draw_jitter(opening.config, opening.entropy),
        tracer=opening.tracer,
        max_epoch=opening.max_epoch,
        promise=opening.promise,
        producer_batches=opening.producer_batches,
    )
    clean = opening.clean or owner.new
    if owner.new:
        found = loader.create(opening.log_start_offset)
    else:
        names = opening.disk.listdir(opening.directory) if opening.names is None else opening.names
        found = loader.load(names, opening.log_start_offset, opening.recovery_point, clean=clean)
    ctx = LogContext(
        log=log,
        disk=opening.disk,
        tracer=opening.tracer,
        entropy=opening.entropy,
        tp=opening.tp,
        topic_id=owner.topic_id,
        directory=opening.directory,
        config=opening.config,
        wall_ms=opening.wall_ms,
        segments=found.segments,
        epochs=found.epochs,
        producers=found.producers,
        log_start_offset=found.log_start_offset,
        hw=found.log_start_offset,
        leo=found.leo,
        recovery_point=found.recovery_point,
        settled=clean and not owner.new,
        claimed=owner.topic_id is None or found.segments.size_bytes > 0,
    )
    ctx.check(producers=False)
    if is_heard(ctx.tracer, LogOpened):
        ctx.tracer.emit(
            LogOpened(
                tp=ctx.tp,
                log_start_offset=ctx.log_start_offset,
                leo=ctx.leo,
                recovery_point=ctx.recovery_point,
                segments=len(ctx.segments),
                clean=clean,
            )
        )
    return ctx, EpochFile(ctx, clean=clean, filed=found.epochs_filed), DeletedFiles(ctx, found.deleted)
