"""ADR 7: every file of a partition, and beside the partitions, is damaged while the broker is down.

What it can vouch for it serves; the rest is fetched anew where others have it, and refused in words where nobody has. The other
partitions are served.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from kraftlite.log import checkpoints
from kraftlite.log.batch import iter_batches
from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.log.statements import STATEMENTS, Statement, Statements
from kraftlite.model.errors import StorageFault
from kraftlite.model.ids import uuid_to_str
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.broker_logs import ORDERS, PAYMENTS, Logs
from tests.harness.disk import MemDisk
from tests.harness.log_support import append, everything, values

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)
COUNT = 24
HERE = "/d1/a-0"


def fetched_to(log: Log) -> int:
    """The end of what a follower gets that begins where the log does."""
    offset = log.log_start_offset
    while data := log.read(offset, 1 << 20, up_to=log.leo):
        offset = list(iter_batches(data))[-1][0].next_offset
    return offset


async def filled(*, clean: bool, config: LogConfig = SMALL) -> Logs:
    """a-0 with several flushed segments, a-1 with one record; closed in order, or killed."""
    logs = Logs()
    logs.log_configs["a"] = config
    await logs.load()
    logs.create(A1, "neighbour")
    logs.create(A0)
    log = opened(logs, A0)
    for number in range(COUNT):
        append(log, "x" * 60, f"v{number}", epoch=number // 8)
    await logs.bed.clock.settle()
    if clean:
        await logs.dirs.close(broker_epoch=1)
    return logs


def opened(logs: Logs, tp: TopicPartition) -> Log:
    log = logs.dirs.get(tp)
    assert log is not None
    return log


def again(logs: Logs, config: LogConfig = SMALL) -> Logs:
    found = logs.restart()
    found.log_configs["a"] = config
    return found


def names(disk: MemDisk, suffix: str) -> list[str]:
    return [f"{HERE}/{name}" for name in disk.listdir(HERE) if name.endswith(suffix)]


def cut(disk: MemDisk, path: str, keep: float) -> None:
    data = disk.read_file(path)
    disk.write_file_atomically(path, data[: int(len(data) * keep)])


def flip(disk: MemDisk, path: str, position: int) -> None:
    data = bytearray(disk.read_file(path))
    data[position] ^= 0x10
    disk.write_file_atomically(path, bytes(data))


def put(disk: MemDisk, path: str, data: bytes) -> None:
    disk.write_file_atomically(path, data)


def last_batch(disk: MemDisk) -> int:
    """Where in the last segment the last batch begins."""
    data = disk.read_file(names(disk, ".log")[-1])
    *_, (last, _) = iter_batches(data)
    return len(data) - last.size_bytes


def all_gone(disk: MemDisk) -> None:
    for path in names(disk, ".log"):
        disk.unlink(path)


def file_instead(disk: MemDisk) -> None:
    disk.rmtree(HERE)
    put(disk, HERE, b"a file")


def swapped(disk: MemDisk) -> None:
    """The first and the second segment have each other's content."""
    first, second = names(disk, ".log")[:2]
    one, two = disk.read_file(first), disk.read_file(second)
    put(disk, first, two)
    put(disk, second, one)


Damage = Callable[[MemDisk], object]
LOSES: dict[str, Damage] = {
    "first segment gone": lambda disk: disk.unlink(names(disk, ".log")[0]),
    "first two segments gone": lambda disk: [disk.unlink(path) for path in names(disk, ".log")[:2]],
    "first segment empty": lambda disk: put(disk, names(disk, ".log")[0], b""),
    "first segment cut": lambda disk: cut(disk, names(disk, ".log")[0], 0.5),
    "middle segment gone": lambda disk: disk.unlink(names(disk, ".log")[3]),
    "middle segment empty": lambda disk: put(disk, names(disk, ".log")[3], b""),
    "middle segment cut": lambda disk: cut(disk, names(disk, ".log")[3], 0.5),
    "last segment gone": lambda disk: disk.unlink(names(disk, ".log")[-1]),
    "all segments gone": all_gone,
    "all but the last gone": lambda disk: [disk.unlink(path) for path in names(disk, ".log")[:-1]],
    "segments swapped": swapped,
    "the directory is gone": lambda disk: disk.rmtree(HERE),
    "the directory is a file": file_instead,
    "the directory is empty": lambda disk: (disk.rmtree(HERE), disk.makedirs(HERE)),
    "another topic's id": lambda disk: checkpoints.write_partition_metadata(disk, HERE, PAYMENTS),
    "log renamed to no offset": lambda disk: disk.rename(names(disk, ".log")[0], f"{HERE}/0.log"),
    "log renamed beyond int64": lambda disk: disk.rename(names(disk, ".log")[0], f"{HERE}/{'9' * 20}.log"),
}
CLEAN_ONLY: dict[str, Damage] = {
    "last segment cut": lambda disk: cut(disk, names(disk, ".log")[-1], 0.5),
    "last segment empty": lambda disk: put(disk, names(disk, ".log")[-1], b""),
    "last batch flipped": lambda disk: flip(disk, names(disk, ".log")[-1], -3),
    "last batch's offset flipped": lambda disk: flip(disk, names(disk, ".log")[-1], last_batch(disk) + 6),
    "last batch's epoch flipped": lambda disk: flip(disk, names(disk, ".log")[-1], last_batch(disk) + 15),
}
"""After a kill the file could as well have ended there by a power cut."""
HARMLESS: dict[str, Damage] = {
    "nothing": lambda disk: None,
    "log start too high": lambda disk: put(disk, "/d1/log-start-offset-checkpoint", b"0\n1\na 0 20\n"),
    "log start beyond the end": lambda disk: put(disk, "/d1/log-start-offset-checkpoint", b"0\n1\na 0 999999\n"),
    "log start of 2^63": lambda disk: put(disk, "/d1/log-start-offset-checkpoint", b"0\n1\na 0 9223372036854775808\n"),
    "log start negative": lambda disk: put(disk, "/d1/log-start-offset-checkpoint", b"0\n1\na 0 -5\n"),
    "log start garbage": lambda disk: put(disk, "/d1/log-start-offset-checkpoint", b"\x00\xff" * 50),
    "10^9 entries announced": lambda disk: put(disk, "/d1/recovery-point-offset-checkpoint", b"0\n1000000000\na 0 1\n"),
    "number of 5000 digits": lambda disk: put(disk, "/d1/recovery-point-offset-checkpoint", b"0\n1\na 0 " + b"9" * 5000 + b"\n"),
    "recovery point too high": lambda disk: put(disk, "/d1/recovery-point-offset-checkpoint", b"0\n1\na 0 99999\n"),
    "recovery point NULs": lambda disk: put(disk, "/d1/recovery-point-offset-checkpoint", bytes(4096)),
    "high watermark too high": lambda disk: put(disk, "/d1/replication-offset-checkpoint", b"0\n1\na 0 9999999\n"),
    "checkpoint enormous": lambda disk: put(disk, "/d1/replication-offset-checkpoint", b"0\n1\n" + b"x" * (65 << 20)),
    "statements gone": lambda disk: disk.unlink(f"/d1/{STATEMENTS}"),
    "statements garbage": lambda disk: put(disk, f"/d1/{STATEMENTS}", b"\xff\x00\n" * 70),
    "statements flipped": lambda disk: flip(disk, f"/d1/{STATEMENTS}", 20),
    "statements cut": lambda disk: cut(disk, f"/d1/{STATEMENTS}", 0.7),
    "partition.metadata garbled": lambda disk: put(disk, f"{HERE}/partition.metadata", b"\xff\x00garbage"),
    "partition.metadata gone": lambda disk: disk.unlink(f"{HERE}/partition.metadata"),
    "partition.metadata enormous": lambda disk: put(disk, f"{HERE}/partition.metadata", bytes(2 << 20)),
    "partition.metadata a directory": lambda disk: (
        disk.unlink(f"{HERE}/partition.metadata"),
        disk.makedirs(f"{HERE}/partition.metadata"),
    ),
    "epochs too high": lambda disk: put(disk, f"{HERE}/leader-epoch-checkpoint", b"0\n1\n2147483647 0\n"),
    "epochs beyond int32": lambda disk: put(disk, f"{HERE}/leader-epoch-checkpoint", b"0\n1\n9223372036854775808 0\n"),
    "epochs one too high": lambda disk: put(disk, f"{HERE}/leader-epoch-checkpoint", b"0\n4\n0 0\n1 16\n2 32\n9 40\n"),
    "epochs negative": lambda disk: put(disk, f"{HERE}/leader-epoch-checkpoint", b"0\n1\n-1 0\n"),
    "epochs descend": lambda disk: put(disk, f"{HERE}/leader-epoch-checkpoint", b"0\n2\n2 0\n1 16\n"),
    "epochs beyond the end": lambda disk: put(disk, f"{HERE}/leader-epoch-checkpoint", b"0\n1\n2 999999\n"),
    "epochs of a wrong start": lambda disk: put(disk, f"{HERE}/leader-epoch-checkpoint", b"0\n3\n0 0\n1 4\n2 32\n"),
    "epochs old": lambda disk: put(disk, f"{HERE}/leader-epoch-checkpoint", b"0\n1\n0 0\n"),
    "epochs empty": lambda disk: put(disk, f"{HERE}/leader-epoch-checkpoint", b"0\n0\n"),
    "epochs a directory": lambda disk: (
        disk.unlink(f"{HERE}/leader-epoch-checkpoint"),
        disk.makedirs(f"{HERE}/leader-epoch-checkpoint/x"),
    ),
    "index too long": lambda disk: put(disk, names(disk, ".index")[0], bytes(8 << 20)),
    "index garbage": lambda disk: [put(disk, path, b"\xff" * 33) for path in names(disk, "index")],
    "snapshot garbage": lambda disk: [put(disk, path, b"\xff" * 99) for path in names(disk, ".snapshot")],
    "snapshot enormous": lambda disk: put(disk, f"{HERE}/{2 * COUNT:020d}.snapshot", bytes(65 << 20)),
    "snapshot a directory": lambda disk: (
        [disk.unlink(path) for path in names(disk, ".snapshot")[-1:]],
        disk.makedirs(f"{HERE}/{2 * COUNT:020d}.snapshot"),
    ),
    "txnindex enormous": lambda disk: put(disk, f"{HERE}/{0:020d}.txnindex", bytes(34 * (2 << 20))),
    "txnindex garbage": lambda disk: put(disk, f"{HERE}/{0:020d}.txnindex", b"\x01" * 34),
    "odd names": lambda disk: [
        disk.makedirs(f"/d1/{name}")
        for name in ("a-00", "a-99999999999999999999", "-0", "a 0", "x" * 200 + "-5", "a-0.copy", "a-0-damaged")
    ],
    "odd files": lambda disk: [
        put(disk, f"{HERE}/{name}", b"?") for name in ("x.log", "1.log", f"{'1' * 20}.index", "²" * 20 + ".log", ".log", "x.swap")
    ],
}


def untouched(disk: MemDisk) -> dict[str, bytes]:
    return {path: disk.read_file(path) for path in disk.tree("/d1") if path.endswith(".log") and path.startswith(HERE)}


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("name", [*LOSES, *CLEAN_ONLY])
async def test_lg_54_the_only_copy_is_refused_in_words_and_nothing_of_it_is_deleted(name: str, clean: bool) -> None:
    if name in CLEAN_ONLY and not clean:
        pytest.skip("a power cut may have left it so")
    logs = await filled(clean=clean)
    disk = logs.bed.disk
    (LOSES | CLEAN_ONLY)[name](disk)
    before = untouched(disk)
    for _ in range(2):
        logs = again(logs)
        assert await logs.load_assigned(A0, A1, sole=True, leader_epoch=2) == 1
        assert values(opened(logs, A1)) == [(0, b"neighbour")], "the other partition is served"
        with pytest.raises(StorageFault, match="accept-data-loss"):
            logs.dirs.get_or_create(A0, ORDERS)
        assert not logs.failed and not logs.bed.faults
        (refused,) = logs.bed.events("broker.log_refused")
        assert refused.partition == "a-0" and "/d1/a-0" in refused.reason, refused
        kept = {path: data for path, data in untouched(disk).items() if path in before}
        stray = [path for path in disk.tree("/d1") if "-stray/" in path and path.endswith(".log")]
        assert kept == before or [disk.read_file(path) for path in stray] == list(before.values())
        await logs.dirs.close(broker_epoch=2)


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("name", [*LOSES, *CLEAN_ONLY])
async def test_lg_53_a_replica_that_lost_records_is_fetched_anew_from_others(name: str, clean: bool) -> None:
    if name in CLEAN_ONLY and not clean:
        pytest.skip("a power cut may have left it so")
    logs = await filled(clean=clean)
    good = everything(opened(logs, A0)) if not clean else None
    (LOSES | CLEAN_ONLY)[name](logs.bed.disk)
    logs = again(logs)
    await logs.load_assigned(A0, A1, sole=False, leader_epoch=2)
    assert values(opened(logs, A1)) == [(0, b"neighbour")]
    log = logs.dirs.get_or_create(A0, ORDERS)
    assert (log.log_start_offset, log.segment_base_offsets[0]) == (0, 0)
    assert log.leo < 2 * COUNT, "it knows that it does not have everything"
    found = everything(log)
    assert good is None or good.startswith(found), "what is left is a beginning without holes"
    assert values(log) == [(offset, ("x" * 60 if offset % 2 == 0 else f"v{offset // 2}").encode()) for offset in range(log.leo)]
    append(log, "from the leader", epoch=2)
    assert not logs.failed and not logs.bed.faults
    await logs.dirs.close(broker_epoch=2)
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=True, leader_epoch=2) == 2, "it is whole now"


@pytest.mark.parametrize("sole", [True, False])
@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("name", HARMLESS)
async def test_lg_55_what_can_be_made_again_is_made_again_and_nothing_is_lost(name: str, clean: bool, sole: bool) -> None:
    logs = await filled(clean=clean)
    HARMLESS[name](logs.bed.disk)
    for _ in range(2):
        logs = again(logs)
        assert await logs.load_assigned(A0, A1, sole=sole, leader_epoch=2) == 2
        log = opened(logs, A0)
        assert (log.log_start_offset, log.leo) == (0, 2 * COUNT)
        assert len(values(log)) == 2 * COUNT
        assert log.epoch_entries == ((0, 0), (1, 16), (2, 32))
        assert not logs.bed.events("broker.log_refused") and not logs.bed.events("broker.damaged_log_set_aside")
        await logs.dirs.close(broker_epoch=2)


async def test_lg_55_epochs_are_written_where_a_directory_was_in_the_way() -> None:
    """The first election after the start failed the whole log directory."""
    logs = await filled(clean=True)
    HARMLESS["epochs a directory"](logs.bed.disk)
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=True, leader_epoch=2) == 2
    opened(logs, A0).assign_epoch_start(3, 2 * COUNT)
    data = logs.bed.disk.read_file(f"{HERE}/leader-epoch-checkpoint")
    assert checkpoints.parse_epochs("", data) == [(0, 0), (1, 16), (2, 32), (3, 2 * COUNT)]
    assert not logs.failed


@pytest.mark.parametrize("code", [errno.EACCES, errno.ELOOP, errno.ENOENT])
@pytest.mark.parametrize("op", ["open", "listdir", "read_file"])
async def test_lg_55_one_file_that_cannot_be_opened_refuses_one_partition(op: str, code: int) -> None:
    logs = await filled(clean=True)
    logs.bed.disk.inject(op, path=HERE, code=code, times=None)
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=True) == 1
    with pytest.raises(StorageFault, match="/d1/a-0"):
        logs.dirs.get_or_create(A0, ORDERS)
    assert not logs.failed and logs.dirs.get(A1) is not None
    logs.bed.disk.heal()
    await logs.dirs.close(broker_epoch=2)
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=True) == 2, "put right, it is served"
    assert opened(logs, A0).leo == 2 * COUNT


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
async def test_lg_32_a_failing_disk_still_fails_its_directory(code: int) -> None:
    logs = await filled(clean=True)
    logs.bed.disk.inject("open", path=HERE, code=code)
    logs = again(logs)
    await logs.load_assigned(A0, A1, sole=True)
    assert logs.failed


@pytest.mark.parametrize("name", [*LOSES, *CLEAN_ONLY])
async def test_lg_54_a_person_can_go_on_with_what_is_left(name: str) -> None:
    """And no offset is given again that was given before."""
    logs = await filled(clean=True)
    disk = logs.bed.disk
    (LOSES | CLEAN_ONLY)[name](disk)
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=True, leader_epoch=2) == 1
    await logs.dirs.close(broker_epoch=2)
    if name == "the directory is a file":
        disk.unlink(HERE)
    disk.makedirs(HERE)
    put(disk, f"{HERE}/accept-data-loss", b"")
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=True, leader_epoch=2) == 2
    assert logs.bed.events("broker.loss_accepted")
    log = opened(logs, A0)
    assert log.leo == 2 * COUNT
    assert fetched_to(log) == log.leo, "a follower comes to the end before anybody writes"
    append(log, "next", epoch=2)
    found = values(log)
    assert found[-1] == (2 * COUNT, b"next")
    await logs.dirs.close(broker_epoch=3)
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=True, leader_epoch=2) == 2, "it was accepted once and for all"
    assert values(opened(logs, A0)) == found


@pytest.mark.parametrize("text", [None, b"", b"\xff\xfe", b"version: 0\ntopic_id: x\n"])
async def test_lg_33_records_of_nobody_are_neither_adopted_nor_deleted(text: bytes | None) -> None:
    """Neither the file in the directory nor a statement says whose they are."""
    for sole in (True, False):
        logs = await filled(clean=True)
        disk = logs.bed.disk
        disk.unlink(f"/d1/{STATEMENTS}")
        disk.unlink(f"{HERE}/partition.metadata") if text is None else put(disk, f"{HERE}/partition.metadata", text)
        before = [disk.read_file(path) for path in disk.tree("/d1") if path.endswith(".log")]
        logs = again(logs)
        assert await logs.load_assigned(A0, A1, sole=sole) == 1
        assert logs.bed.events("broker.log_refused" if sole else "broker.damaged_log_set_aside")
        assert sorted(before) == sorted(disk.read_file(path) for path in disk.tree("/d1") if path.endswith(".log"))


async def test_lg_53_what_retention_and_requests_deleted_is_not_missing() -> None:
    """Whether the process was killed before, or after the files went."""
    for wait_ms in (0, 70_000):
        logs = await filled(clean=False)
        log = opened(logs, A0)
        log.update_hw(2 * COUNT)
        log.increment_log_start(20, "asked")
        logs.dirs.write_log_starts()
        log.delete_segments_before(20)
        logs.dirs.purge_soon(log)
        await logs.bed.clock.run_for(wait_ms)
        for crash in (False, True):
            logs = logs.restart(crash=crash)
            logs.log_configs["a"] = SMALL
            assert await logs.load_assigned(A0, A1, sole=True) == 2
            assert opened(logs, A0).log_start_offset == 20


async def test_lg_53_segments_that_were_deleted_and_not_stated_yet_are_unlinked_when_they_are() -> None:
    logs = await filled(clean=False)
    log = opened(logs, A0)
    log.update_hw(2 * COUNT)
    log.delete_segments_before(20)
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=True) == 2
    assert names(logs.bed.disk, ".log.deleted")
    await logs.bed.clock.run_for(70_000)
    assert not names(logs.bed.disk, ".deleted")
    logs = again(logs)
    assert await logs.load_assigned(A0, A1, sole=True) == 2


async def test_lg_53_the_originals_of_a_compacted_segment_do_not_prove_that_it_was_deleted() -> None:
    """Compaction leaves them behind under the names that retention gives, and a compacted log has no retention."""
    config = LogConfig(segment_bytes=600, index_interval_bytes=100, cleanup_policy=("compact",))
    logs = await filled(clean=False, config=config)
    disk, first = logs.bed.disk, f"{HERE}/{0:020d}.log"
    put(disk, f"{first}.deleted", disk.read_file(first))
    disk.unlink(first)
    logs = again(logs, config)
    assert await logs.load_assigned(A0, A1, sole=True) == 1
    assert logs.bed.events("broker.log_refused")


async def test_lg_53_truncations_and_a_new_start_are_stated() -> None:
    for offset in (0, 7, 20, 30):
        logs = await filled(clean=False)
        opened(logs, A0).truncate_to(offset, allow_below_hw=True)
        logs = again(logs)
        assert await logs.load_assigned(A0, A1, sole=True) == 2
        assert opened(logs, A0).leo <= offset
    logs = await filled(clean=False)
    opened(logs, A0).truncate_fully_and_start_at(5_000)
    logs = logs.restart(crash=True)
    assert await logs.load_assigned(A0, A1, sole=True) == 2
    assert opened(logs, A0).leo == 5_000


async def test_lg_53_a_power_cut_takes_what_was_not_flushed_and_that_is_no_damage() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "x")
    logs.create(A1)
    logs = logs.restart(crash=True)
    assert await logs.load_assigned(A0, A1, sole=True) in (1, 2)
    assert logs.dirs.get_or_create(A0, ORDERS).leo == 0
    assert logs.dirs.get_or_create(A1, ORDERS).leo == 0
    assert not logs.bed.events("broker.log_refused")


async def test_without_statements_a_log_start_beyond_the_end_is_not_believed() -> None:
    """The first start after an upgrade, or the second damage."""
    for sole in (True, False):
        logs = await filled(clean=True)
        logs.bed.disk.unlink(f"/d1/{STATEMENTS}")
        put(logs.bed.disk, "/d1/log-start-offset-checkpoint", b"0\n1\na 0 999\n")
        logs = again(logs)
        assert await logs.load_assigned(A0, A1, sole=sole) == 1
        assert len(logs.bed.events("broker.log_refused" if sole else "broker.damaged_log_set_aside")) == 1
        if sole:
            assert names(logs.bed.disk, ".log")


async def test_copies_that_were_set_aside_are_bounded() -> None:
    """LG-53."""
    logs = await filled(clean=True)
    for _ in range(12):
        logs.bed.disk.unlink(names(logs.bed.disk, ".log")[0])
        logs.bed.clock.jump_wall(1000) if hasattr(logs.bed.clock, "jump_wall") else None
        logs = again(logs)
        assert await logs.load_assigned(A0, A1, sole=False) == 1
        log = logs.dirs.get_or_create(A0, ORDERS)
        append(log, "x")
        log.roll()
        append(log, "y")
        await logs.bed.clock.settle()
        await logs.dirs.close(broker_epoch=1)
    copies = [name for name in logs.bed.disk.listdir("/d1") if name.endswith("-damaged")]
    assert len(copies) == 8


async def test_deleting_a_topic_writes_the_checkpoints_once() -> None:
    logs = Logs()
    await logs.load()
    tps = [TopicPartition("big", index) for index in range(50)]
    for tp in tps:
        logs.create(tp)
    written: list[str] = []
    plain = logs.bed.disk.write_file_atomically

    def counted(path: str, data: bytes) -> None:
        written.append(path)
        plain(path, data)

    logs.bed.disk.write_file_atomically = counted  # type: ignore[method-assign]
    for tp in tps:
        logs.dirs.delete(tp)
    await logs.bed.clock.run_for(1)
    assert written.count("/d1/recovery-point-offset-checkpoint") == 1
    assert b"big" not in logs.bed.disk.read_file("/d1/recovery-point-offset-checkpoint")
    await logs.bed.tasks.cancel_all()


def test_statements_survive_a_torn_end_and_nothing_else() -> None:
    disk = MemDisk()
    disk.makedirs("/d1")
    one, two, three = ((ORDERS, index) for index in range(3))
    statements = Statements(disk, "/d1/s")
    statements.rewrite({one: Statement(0, 5, 0), two: Statement(1, 6, 3, 2)})
    statements.note({three: Statement(7, 9, 7)})
    statements.note({two: None})
    data = disk.read_file("/d1/s")

    def read(content: bytes) -> tuple[bool, dict[object, Statement]]:
        put(disk, "/d1/s", content)
        found = Statements(disk, "/d1/s")
        found.load()
        return found.known, dict(found.items())

    whole = {one: Statement(0, 5, 0), three: Statement(7, 9, 7)}
    assert read(data) == (True, whole)
    assert read(data + b"0123abcd torn") == (True, whole)
    assert read(data + bytes(100)) == (True, whole)
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    assert read(data[: last + 5]) == (True, whole | {two: Statement(1, 6, 3, 2)})
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1
        known, found = read(bytes(broken))
        assert not (found and not known)
        assert position >= last - 1 or not known, position
    assert uuid_to_str(ORDERS).encode() in data
    assert read(b"") == (False, {})
