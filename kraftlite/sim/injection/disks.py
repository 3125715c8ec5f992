"""Faults that hit the disk of a node while it runs."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.injection.handler import Handler
from kraftlite.simhost.disk_faults import FLUSHES, InjectedError
from kraftlite.simhost.host import SimHost

if TYPE_CHECKING:
    from kraftlite.sim.injector import Injector

FILLING: Final = ("pwritev", "write_file", "makedirs")
"""The operations that need room."""
CHANGING: Final = ("pwritev", "truncate", "write_file", "makedirs", "rename", "link", "unlink", "rmtree", "sync_dir")


def disk_slow(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is not None:
        slow = injector.cluster.flush_us
        slow[node.node_id] = (plan.amount // 4, plan.amount)
        injector.end_of(plan, lambda: slow.pop(node.node_id, None))


def disk_stall(injector: Injector, plan: FaultPlan) -> None:
    node = injector.one(plan)
    if node is not None:
        slow = injector.cluster.flush_us
        slow[node.node_id] = (plan.for_ms * 1000, plan.for_ms * 1000)
        injector.end_of(plan, lambda: slow.pop(node.node_id, None))


def disk_full(injector: Injector, plan: FaultPlan) -> None:
    disk_fault(injector, plan, FILLING, errno.ENOSPC, times=None)


def disk_error(injector: Injector, plan: FaultPlan) -> None:
    ops = ("pread", "pwritev", "flush", "sync", "flush-end", "open", "write_file")
    disk_fault(injector, plan, (ops[plan.amount % len(ops)],), errno.EIO, times=1)


def disk_fault(injector: Injector, plan: FaultPlan, ops: Sequence[str], code: int, times: int | None) -> None:
    node = injector.one(plan)
    if node is None:
        return
    injector.disk_victims.add(node.node_id)
    errors = [node.disk.inject(op, code=code, times=times) for op in ops]

    def heal() -> None:
        for it in errors:
            if it in node.disk.errors:
                node.disk.errors.remove(it)
        if not node.running:
            injector.boot_later(node, 0)

    injector.end_of(plan, heal)


def fsync_lost(injector: Injector, plan: FaultPlan) -> None:
    """The next flush fails, once, and what it was to make durable is gone from the page cache ("fsyncgate", 2018)."""
    node = injector.one(plan)
    if node is None:
        return
    op = FLUSHES[plan.amount % len(FLUSHES)]
    error = node.disk.inject(op, code=errno.EIO, times=1, drops=injector.trouble)
    node.disk.on_dropped = lambda path: injector.on_loss(node, [path])
    _until_healed(injector, plan, node, [error])


def short_io(injector: Injector, plan: FaultPlan) -> None:
    """One of `amount` reads and writes does a part of what it was asked for, and reports no error."""
    node = injector.one(plan)
    if node is None:
        return
    rng, one_in = injector.trouble, max(1, plan.amount)

    def part(length: int) -> int:
        return rng.randint(1, length) if length > 1 and not rng.randrange(one_in) else length

    node.disk.short = part
    injector.end_of(plan, lambda: setattr(node.disk, "short", None))


def disk_flaky(injector: Injector, plan: FaultPlan) -> None:
    """The disk is full and has room again, in turns of up to `amount` milliseconds; a write without room has done a part."""
    node = injector.one(plan)
    if node is None:
        return
    loop, disk = injector.cluster.loop, node.disk
    until_us = loop.now_us() + 1000 * plan.for_ms

    def fill() -> None:
        if loop.now_us() >= until_us:
            return
        errors = [disk.inject(op, code=errno.ENOSPC, times=None, torn=injector.trouble) for op in FILLING]
        injector.at(injector.trouble.randint(1, max(1, plan.amount)), lambda: drain(errors))

    def drain(errors: Sequence[InjectedError]) -> None:
        _heal_errors(injector, node, errors)
        injector.at(injector.trouble.randint(1, max(1, plan.amount)), fill)

    injector.disk_victims.add(node.node_id)
    fill()


def directory_of(injector: Injector, plan: FaultPlan) -> tuple[SimHost, str] | None:
    node = injector.one(plan)
    if node is None:
        return None
    directories = node.config.all_log_dirs
    path = directories[plan.amount % len(directories)]
    injector.note(f"the log directory is {path}")
    return node, path


def dir_error(injector: Injector, plan: FaultPlan) -> None:
    """Everything that is done in one log directory fails."""
    _fail_directory(injector, plan, ("",), errno.EIO)


def dir_full(injector: Injector, plan: FaultPlan) -> None:
    _fail_directory(injector, plan, FILLING, errno.ENOSPC)


def dir_no_inodes(injector: Injector, plan: FaultPlan) -> None:
    """The file system of one log directory has no room for one more directory. What is there goes on, so nobody knows before a
    replica is to be made there."""
    _fail_directory(injector, plan, ("makedirs",), errno.ENOSPC)


def dir_read_only(injector: Injector, plan: FaultPlan) -> None:
    """One log directory is mounted anew, read-only, as a file system with an error is."""
    _fail_directory(injector, plan, CHANGING, errno.EROFS)


def _fail_directory(injector: Injector, plan: FaultPlan, ops: Sequence[str], code: int) -> None:
    found = directory_of(injector, plan)
    if found is not None:
        node, path = found
        torn = injector.trouble if code == errno.ENOSPC else None
        errors = [node.disk.inject(op, path=path, code=code, times=None, torn=torn) for op in ops]
        _until_healed(injector, plan, node, errors)


def dir_slow(injector: Injector, plan: FaultPlan) -> None:
    """Flushes in one log directory take a second, up to the end of the fault."""
    found = directory_of(injector, plan)
    if found is not None:
        node, path = found
        node.disk.slow_below[path] = 1_000_000
        injector.end_of(plan, lambda: node.disk.slow_below.pop(path, None))


def _until_healed(injector: Injector, plan: FaultPlan, node: SimHost, errors: Sequence[InjectedError]) -> None:
    injector.disk_victims.add(node.node_id)
    injector.end_of(plan, lambda: _heal_errors(injector, node, errors))


def _heal_errors(injector: Injector, node: SimHost, errors: Sequence[InjectedError]) -> None:
    for it in errors:
        if it in node.disk.errors:
            node.disk.errors.remove(it)
    injector.bring_back(node)


KINDS: Final[Mapping[str, Handler]] = {
    "disk-slow": disk_slow,
    "disk-stall": disk_stall,
    "disk-full": disk_full,
    "disk-error": disk_error,
    "fsync-lost": fsync_lost,
    "short-io": short_io,
    "disk-flaky": disk_flaky,
    "dir-error": dir_error,
    "dir-full": dir_full,
    "dir-no-inodes": dir_no_inodes,
    "dir-read-only": dir_read_only,
    "dir-slow": dir_slow,
}
