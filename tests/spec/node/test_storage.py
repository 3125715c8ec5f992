"""Formatting, describing, verifying and locking a node's directories."""

from __future__ import annotations

import base64
import errno
import random
from dataclasses import replace
from pathlib import Path

import pytest

from kraftlite.config.server import ServerConfig, load
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from kraftlite.metadata.records import FeatureLevelRecord, UserScramCredentialRecord
from kraftlite.model.ids import random_uuid, uuid_from_str, uuid_to_str
from kraftlite.node import locking, storage
from kraftlite.node.forming import Formation
from kraftlite.node.meta_properties import read_meta_properties
from kraftlite.node.storage import StorageError
from kraftlite.raft.snapshots import read_snapshot_file
from tests.harness.disk import MemDisk

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
ENTROPY = random.Random(7)
BOOTSTRAP = "/m/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def config(
    tmp_path: Path, *, roles: str = "broker,controller", node_id: int = 1, dirs: str = "/d1,/d2", **extra: str
) -> ServerConfig:
    listeners = []
    if "broker" in roles:
        listeners += ["PLAINTEXT://localhost:9092", "REPLICATION://localhost:9192"]
    if "controller" in roles:
        listeners.append("CONTROLLER://localhost:9093")
    voter = node_id if "controller" in roles else 100
    values = {
        "process.roles": roles,
        "node.id": str(node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{voter}@localhost:9093",
        "log.dirs": dirs.split(",")[0],
        "metadata.log.dir": "/m",
        **{key.replace("_", "."): value for key, value in extra.items()},
    }
    if "broker" in roles:
        values["inter.broker.listener.name"] = "REPLICATION"
    path = tmp_path / f"server-{node_id}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    loaded = load(path)
    # More than one is refused where a node is configured; what is here can do with several already.
    return replace(loaded, log_dirs=tuple(dirs.split(",")))


def formatted(disk: MemDisk, server: ServerConfig, cluster_id: str = CLUSTER, **options: object) -> list[str]:
    return storage.format_directories(
        disk,
        server,
        cluster_id,
        entropy=ENTROPY,
        wall_ms=1_700_000_000_000,
        **options,  # type: ignore[arg-type]
    )


def test_to_01_random_ids_are_22_characters_of_16_bytes_and_never_start_with_a_dash() -> None:
    rng = random.Random(3)
    for _ in range(1_000):
        text = uuid_to_str(random_uuid(rng))
        assert len(text) == 22 and not text.startswith("-")
        assert len(base64.urlsafe_b64decode(text + "==")) == 16 and uuid_from_str(text).int >= 100


def test_to_02_one_line_per_directory_and_bl_14_what_is_written(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    assert formatted(disk, server) == [
        "Formatting data directory /d1 with metadata.version 4.3-IV0.",
        "Formatting data directory /d2 with metadata.version 4.3-IV0.",
        "Formatting metadata directory /m with metadata.version 4.3-IV0.",
    ]
    found = [read_meta_properties(disk, path) for path in ("/m", "/d1", "/d2")]
    assert all(item is not None and item.cluster_id == CLUSTER and item.node_id == 1 for item in found)
    assert len({item.directory_id for item in found if item is not None}) == 3
    lines = disk.read_file("/d1/meta.properties").decode().splitlines()
    assert {"version=1", f"cluster.id={CLUSTER}", "node.id=1"} < set(lines)


def test_to_02_the_bootstrap_snapshot_begins_with_the_metadata_version(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server, release_version="3.9")
    records = [record for batch in read_snapshot_file(disk, BOOTSTRAP, MetadataSerde()).batches() for record in batch]
    assert records == [FeatureLevelRecord(name=METADATA_VERSION, level=21)]
    assert storage.verify(disk, server).bootstrap == tuple(records)


def test_se_13_the_cluster_begins_with_the_users_that_format_adds(tmp_path: Path) -> None:
    """Also where the voters are in the log, and the records in a file of their own (KAFKA-17636)."""
    user = "SCRAM-SHA-256=[name=alice,password=secret]"
    for forming in (None, Formation()):
        disk, server = MemDisk(), config(tmp_path)
        formatted(disk, server, add_scram=(user, user.replace("256", "512")), forming=forming)
        found = storage.verify(disk, server).bootstrap
        assert found is not None
        users = [it for it in found if isinstance(it, UserScramCredentialRecord)]
        assert [(it.name, it.mechanism, it.iterations) for it in users] == [("alice", 1, 4096), ("alice", 2, 4096)]
        assert users[0].salt != users[1].salt and found[0] == FeatureLevelRecord(name=METADATA_VERSION, level=30)
    with pytest.raises(storage.StorageError, match=r"SCRAM is only supported in metadata.version 3.5-IV2 or later"):
        formatted(MemDisk(), server, add_scram=(user,), release_version="3.4")
    with pytest.raises(storage.StorageError, match=r"--add-scram: You must supply 'name'"):
        formatted(MemDisk(), server, add_scram=("SCRAM-SHA-256=[password=secret]",))


def test_to_02_formatting_survives_a_crash_right_after_it(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    disk.crash()
    assert storage.verify(disk, server).bootstrap == (
        FeatureLevelRecord(name=METADATA_VERSION, level=LATEST_METADATA_VERSION),
        FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=1),
        FeatureLevelRecord(name=GROUP_VERSION, level=1),
        FeatureLevelRecord(name=TRANSACTION_VERSION, level=2),
    )


def test_to_02_a_broker_has_no_bootstrap_snapshot(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path, roles="broker", node_id=4)
    formatted(disk, server)
    assert disk.stat("/m/__cluster_metadata-0") is None
    assert storage.verify(disk, server).bootstrap is None


def test_to_03_a_formatted_directory_is_named_and_the_flag_suggested(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    before = {path: disk.read_file(path) for path in disk.tree()}
    with pytest.raises(StorageError, match=r"/m is already formatted.*--ignore-formatted"):
        formatted(disk, server)
    assert {path: disk.read_file(path) for path in disk.tree()} == before


def test_to_03_with_the_flag_only_empty_directories_are_formatted(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    kept = disk.read_file("/d1/meta.properties")
    disk.unlink("/d2/meta.properties")
    lines = formatted(disk, server, ignore_formatted=True)
    assert lines == ["Formatting data directory /d2 with metadata.version 4.3-IV0."]
    assert disk.read_file("/d1/meta.properties") == kept
    assert formatted(disk, server, ignore_formatted=True) == ["All of the log directories are already formatted."]


@pytest.mark.parametrize("ignore", [False, True])
def test_to_03_somebody_elses_directory_is_an_error_even_with_the_flag(tmp_path: Path, ignore: bool) -> None:
    disk = MemDisk()
    formatted(disk, config(tmp_path))
    with pytest.raises(StorageError, match=f"cluster {CLUSTER}"):
        formatted(disk, config(tmp_path), "another-cluster", ignore_formatted=ignore)
    with pytest.raises(StorageError, match="belongs to node 1, not to 2"):
        formatted(disk, config(tmp_path, node_id=2), ignore_formatted=ignore)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"release_version": "9.9"}, "9.9"),
        ({"release_version": "4.0", "features": {"metadata.version": 25}}, "avoid ambiguity"),
        ({"features": {"share.version": 1}}, "Unsupported feature: share.version"),
        ({"features": {"kraft.version": 1}}, "kraft.version=1"),
        ({"features": {"metadata.version": 3}}, "metadata.version 3"),
    ],
)
def test_to_05_an_unsupported_version_writes_nothing(tmp_path: Path, options: dict[str, object], words: str) -> None:
    disk = MemDisk()
    with pytest.raises(StorageError, match=words):
        formatted(disk, config(tmp_path), **options)
    assert disk.tree() == []


def test_to_02_an_impossible_cluster_id_is_refused(tmp_path: Path) -> None:
    for text in ("", " ", "a b", "a=b"):
        with pytest.raises(StorageError, match="cluster id"):
            formatted(MemDisk(), config(tmp_path), text)


def test_to_06_info_lists_directories_metadata_and_problems(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    found = storage.info(disk, server)
    assert found.directories == ("/d1", "/d2", "/m") and found.problems == ()
    assert sorted(found.metadata) == ["cluster.id", "directory.id", "node.id", "version"]
    disk.unlink("/d1/meta.properties")
    disk.rmtree("/d2")
    problems = storage.info(disk, server).problems
    assert problems == ("/d1 is not formatted.", "/d2 does not exist")


def test_to_06_mismatches_are_problems(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    text = disk.read_file("/d2/meta.properties").decode()
    disk.write_file_atomically("/d2/meta.properties", text.replace(CLUSTER, "other").encode())
    disk.write_file_atomically("/m/meta.properties", b"version=1\nnode.id=1\n")
    problems = storage.info(disk, server).problems
    assert any("Mismatched cluster IDs" in problem for problem in problems)
    assert any("/m/meta.properties: cluster.id is missing" in problem for problem in problems)


def edited(disk: MemDisk, path: str, old: str, new: str) -> None:
    text = disk.read_file(path).decode()
    assert old in text
    disk.write_file_atomically(path, text.replace(old, new).encode())


def test_bl_14_a_start_finds_what_formatting_left(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    layout = storage.verify(disk, server)
    assert layout.cluster_id == CLUSTER and sorted(layout.directory_ids) == ["/d1", "/d2", "/m"]
    assert layout.metadata_dir == "/m/__cluster_metadata-0"


@pytest.mark.parametrize("missing", ["/m", "/d1", "/d2"])
def test_bl_14_an_unformatted_directory_is_refused_by_name(tmp_path: Path, missing: str) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    disk.unlink(f"{missing}/meta.properties")
    with pytest.raises(StorageError, match=f"{missing} is not formatted"):
        storage.verify(disk, server)


def test_bl_14_mismatches_are_refused_naming_file_and_value(tmp_path: Path) -> None:
    cases = [
        ("node.id=1", "node.id=8", r"/d2/meta\.properties: node\.id=8.*node\.id=1"),
        (f"cluster.id={CLUSTER}", "cluster.id=other", r"/d2/meta\.properties: cluster\.id=other.*" + CLUSTER),
        ("version=1", "version=0", r"/d2/meta\.properties: version=0"),
        ("node.id=1", "node.id=x", r"/d2/meta\.properties: node\.id=x"),
    ]
    for old, new, words in cases:
        disk, server = MemDisk(), config(tmp_path)
        formatted(disk, server)
        edited(disk, "/d2/meta.properties", old, new)
        with pytest.raises(StorageError, match=words):
            storage.verify(disk, server)


def test_bl_14_a_copied_directory_is_refused(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    disk.write_file_atomically("/d2/meta.properties", disk.read_file("/d1/meta.properties"))
    with pytest.raises(StorageError, match=r"/d2 and /d1 have the same directory\.id"):
        storage.verify(disk, server)


def test_bl_14_another_cluster_in_the_environment_is_refused(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    with pytest.raises(StorageError, match="CLUSTER_ID says elsewhere"):
        storage.verify(disk, replace(server, cluster_id="elsewhere"))


def test_bl_14_a_metadata_log_in_a_data_directory_is_refused(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    disk.makedirs("/d1/__cluster_metadata-0")
    with pytest.raises(StorageError, match=r"/d1/__cluster_metadata-0.*metadata\.log\.dir=/m"):
        storage.verify(disk, server)


def test_to_02_an_older_bootstrap_file_is_read_too(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server, release_version="4.0")
    disk.rename(BOOTSTRAP, "/m/bootstrap.checkpoint")
    assert storage.verify(disk, server).bootstrap == (
        FeatureLevelRecord(name=METADATA_VERSION, level=25),
        FeatureLevelRecord(name=GROUP_VERSION, level=1),
        FeatureLevelRecord(name=TRANSACTION_VERSION, level=2),
    )


def test_files_of_a_size_that_nobody_writes_are_named_and_not_read(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    good = disk.read_file("/d1/meta.properties")
    disk.write_file_atomically("/d1/meta.properties", good + b"#" * (65_537 - len(good)))
    with pytest.raises(ValueError, match=r"/d1/meta\.properties has 65537 bytes; allowed are at most 65536"):
        read_meta_properties(disk, "/d1")
    disk.write_file_atomically("/d1/meta.properties", good)
    disk.write_file_atomically("/m/bootstrap.checkpoint", disk.read_file(BOOTSTRAP) + bytes(1 << 20))
    disk.unlink(BOOTSTRAP)
    with pytest.raises(StorageError, match=r"/m/bootstrap\.checkpoint has [0-9]+ bytes; allowed are at most 1048576"):
        storage.read_bootstrap(disk, "/m")


def test_kip_848_groups_of_the_new_protocol_since_4_0(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server, release_version="3.9")
    assert storage.verify(disk, server).bootstrap == (FeatureLevelRecord(name=METADATA_VERSION, level=21),)
    disk, server = MemDisk(), config(tmp_path)
    off = {"eligible.leader.replicas.version": 0, "group.version": 0, "transaction.version": 0}
    formatted(disk, server, features=off)
    assert storage.verify(disk, server).bootstrap == (FeatureLevelRecord(name=METADATA_VERSION, level=LATEST_METADATA_VERSION),)


@pytest.mark.parametrize(("release", "level"), [("4.0-IV3", None), ("4.1-IV0", 1), ("4.3", 1)])
def test_el_01_eligible_leader_replicas_since_4_1(tmp_path: Path, release: str, level: int | None) -> None:
    """KIP-966: on where a cluster begins with 4.1-IV0 or later; `--feature` may turn it on since 4.0-IV1."""
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server, release_version=release)
    found = {it.name: it.level for it in storage.verify(disk, server).bootstrap or () if isinstance(it, FeatureLevelRecord)}
    assert found.get(ELIGIBLE_LEADER_REPLICAS_VERSION) == level
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server, release_version="4.0-IV1", features={ELIGIBLE_LEADER_REPLICAS_VERSION: 1})
    found = {it.name: it.level for it in storage.verify(disk, server).bootstrap or () if isinstance(it, FeatureLevelRecord)}
    assert found[ELIGIBLE_LEADER_REPLICAS_VERSION] == 1
    words = r"eligible\.leader\.replicas\.version could not be set to 1 because it depends on metadata\.version level 23"
    with pytest.raises(StorageError, match=words):
        formatted(MemDisk(), server, release_version="4.0-IV0", features={ELIGIBLE_LEADER_REPLICAS_VERSION: 1})


@pytest.mark.parametrize(("release", "level"), [("4.0-IV1", None), ("4.0-IV2", 2), ("4.3", 2)])
def test_an_epoch_for_each_transaction_since_4_0(tmp_path: Path, release: str, level: int | None) -> None:
    """KIP-890: `transaction.version` 2 is where a new cluster begins, and `--feature` says otherwise."""
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server, release_version=release)
    found = {it.name: it.level for it in storage.verify(disk, server).bootstrap or () if isinstance(it, FeatureLevelRecord)}
    assert found.get(TRANSACTION_VERSION) == level
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server, release_version=release, features={"transaction.version": 1})
    found = {it.name: it.level for it in storage.verify(disk, server).bootstrap or () if isinstance(it, FeatureLevelRecord)}
    assert found[TRANSACTION_VERSION] == 1
    with pytest.raises(StorageError, match=r"transaction\.version=3: allowed is a level from 0 to 2"):
        formatted(MemDisk(), server, features={"transaction.version": 3})


def test_to_02_a_torn_bootstrap_snapshot_is_refused(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    disk.write_file_atomically(BOOTSTRAP, disk.read_file(BOOTSTRAP)[:-5])
    with pytest.raises(StorageError, match="checkpoint"):
        storage.verify(disk, server)


def test_bl_15_a_directory_in_use_is_refused_and_nothing_stays_locked(tmp_path: Path) -> None:
    disk = MemDisk()
    for path in ("/a", "/b"):
        disk.makedirs(path)
    held = locking.lock_directories(disk, ["/b"])
    with pytest.raises(StorageError, match=r"/b/\.lock is locked"):
        locking.lock_directories(disk, ["/a", "/b"])
    held.release()
    locking.lock_directories(disk, ["/a", "/b"]).release()


@pytest.mark.parametrize("before", [(), ("/d1", "/m")], ids=["no directories", "directories"])
def test_a_disk_that_is_full_while_formatting_leaves_nothing(tmp_path: Path, before: tuple[str, ...]) -> None:
    """At whichever step: one line that names the file, everything as it was, and the format may be repeated."""
    server = config(tmp_path)
    told = set()
    for step in range(1000):
        disk = MemDisk()
        for directory in before:
            disk.makedirs(directory)
            disk.write_file_atomically(f"{directory}/somebodys", b"x")
        disk.inject(code=errno.ENOSPC, after=step)
        try:
            if formatted(disk, server)[0].startswith("I/O error trying to read log directory /d"):
                continue
        except (StorageError, OSError) as error:
            assert "No space left on device" in str(error)
            told.add(str(error))
        else:
            break
        disk.heal()
        assert disk.tree() == [f"{directory}/somebodys" for directory in before]
        assert [path for path in ("/d1", "/d2", "/m") if disk.stat(path) is not None] == list(before)
        assert len(formatted(disk, server)) == 3
    assert step > 20 and any("meta.properties: No space left on device. Nothing is formatted" in line for line in told)


def test_what_cannot_be_removed_after_a_failed_format_is_named(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    disk.inject("write_file", path="/d2", code=errno.ENOSPC)
    disk.inject("rmtree", path="/d1", code=errno.EIO, times=None)
    with pytest.raises(StorageError, match=r"Nothing is formatted, but /d1 could not be removed"):
        formatted(disk, server)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "version is missing"),
        (b"\x00\xff" * 100, "version is missing"),
        (b"version=0\nbroker.id=1\ncluster.id=x\nnode.id=1\ndirectory.id=x\n", "version=0: allowed is 1"),
        (b"version=1\ncluster.id=x\nnode.id=1\n", "directory.id is missing"),
        (b"version=1\ncluster.id=x\nnode.id=%s\ndirectory.id=x\n" % (b"9" * 5000), "allowed is a whole number"),
        ("version=1\ncluster.id=x\nnode.id=\u0661\ndirectory.id=x\n".encode(), "allowed is a whole number"),
        (b"version=1\ncluster.id=\x1b[2J\nnode.id=1\ndirectory.id=x\n", r"cluster.id='\x1b[2J'"),
        (b"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=%s\n" % (b"z" * 5000), "directory.id"),
        (b"#" * 100_000, "has 100000 bytes"),
    ],
)
def test_a_meta_properties_of_somebody_else_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    disk.write_file_atomically("/d1/meta.properties", content)
    for attempt in (lambda: storage.verify(disk, server), lambda: formatted(disk, server, ignore_formatted=True)):
        with pytest.raises(StorageError) as caught:
            attempt()
        told = str(caught.value)
        assert words in told and "/d1/meta.properties" in told and told.isprintable() and len(told) < 1000
    assert any(words in problem for problem in storage.info(disk, server).problems)


def test_a_meta_properties_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    disk.inject("read_file", path="/d1/meta.properties", code=errno.EACCES, times=None)
    with pytest.raises(StorageError, match=r"/d1/meta\.properties: Permission denied"):
        storage.verify(disk, server)
    assert any("Permission denied" in problem for problem in storage.info(disk, server).problems)


@pytest.mark.parametrize("how", ["missing", "a file", "an I/O error"])
def test_jb_02_a_node_starts_without_a_directory_that_cannot_be_used(tmp_path: Path, how: str) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    disk.rename("/d2", "/elsewhere")
    if how == "a file":
        disk.write_file_atomically("/d2", b"")
    elif how == "an I/O error":
        disk.rename("/elsewhere", "/d2")
        disk.inject("listdir", path="/d2", code=errno.EIO, times=None)
    layout = storage.verify(disk, server)
    assert sorted(layout.directory_ids) == ["/d1", "/m"] and "/d2" in layout.problems["/d2"]
    locking.lock_directories(disk, tuple(layout.directory_ids)).release()


def test_jb_02_a_node_starts_without_a_directory_that_has_become_read_only(tmp_path: Path) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    disk.inject("lock", path="/d2", code=errno.EROFS, times=None)
    layout, locks = locking.verify_and_lock(disk, server)
    assert sorted(layout.directory_ids) == ["/d1", "/m"] and "Read-only file system" in layout.problems["/d2"]
    assert len(locks.held) == 2
    locks.release()


@pytest.mark.parametrize(
    ("failing", "code"),
    [(("/m",), errno.EROFS), (("/d1", "/d2"), errno.EIO), (("/d2",), errno.EACCES)],
    ids=["the metadata directory", "all log directories", "somebody else's"],
)
def test_jb_02_a_node_that_cannot_lock_what_it_needs_says_so_and_leaves_nothing_locked(
    tmp_path: Path, failing: tuple[str, ...], code: int
) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    for path in failing:
        disk.inject("lock", path=path, code=code)
    with pytest.raises(StorageError, match=rf"{failing[-1]}/\.lock cannot be locked"):
        locking.verify_and_lock(disk, server)
    _layout, locks = locking.verify_and_lock(disk, server)
    assert len(locks.held) == 3


@pytest.mark.parametrize("gone", [("/m",), ("/d1", "/d2")], ids=["the metadata directory", "all log directories"])
def test_jb_02_no_node_starts_without_the_metadata_or_any_log_directory(tmp_path: Path, gone: tuple[str, ...]) -> None:
    disk, server = MemDisk(), config(tmp_path)
    formatted(disk, server)
    for path in gone:
        disk.rename(path, f"{path}-away")
    with pytest.raises(StorageError, match=gone[-1]):
        storage.verify(disk, server)
