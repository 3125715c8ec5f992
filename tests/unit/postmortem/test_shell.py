"""The tree, the paths and the commands of the metadata shell; `tests/clients/java/test_metadata_shell.py` asks Kafka's own."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kraftlite.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    UserScramCredentialRecord,
)
from kraftlite.model.ids import NodeId, uuid_to_str
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.postmortem.commands import COMMANDS, Ended, Opened, Shell, in_columns
from kraftlite.postmortem.files import find
from kraftlite.postmortem.glob import components, pattern
from kraftlite.postmortem.replay import MetadataAt
from tests.harness.metadata_log import MetadataLog
from tests.harness.metadata_support import broker, nodes, topic

A = UUID(int=1)


def quota(**parts: str | None) -> tuple[QuotaEntityPart, ...]:
    return tuple(sorted(QuotaEntityPart(type=kind.replace("_", "-"), name=name) for kind, name in parts.items()))


RECORDS: tuple[MetadataRecord, ...] = (
    FeatureLevelRecord(name="metadata.version", level=30),
    FeatureLevelRecord(name="group.version", level=1),
    broker(1, 10),
    broker(2, 11, fenced=False),
    *topic("orders", 1, 3, (1, 2)),
    ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="100"),
    ConfigRecord(resource_type=4, resource_name="", name="message.max.bytes", value="5"),
    ConfigRecord(resource_type=32, resource_name="g", name="k", value="a\x1b[2Jb"),
    ClientQuotaRecord(entity=quota(user="a(b)", client_id="c"), key="producer_byte_rate", value="1048576"),
    ClientQuotaRecord(entity=quota(user=None), key="request_percentage", value="12.5"),
    UserScramCredentialRecord(name="alice", mechanism=1, salt=b"\x01\xff", stored_key=b"k", server_key=b"s", iterations=4096),
    ProducerIdsRecord(broker_id=NodeId(1), broker_epoch=10, next_producer_id=3000),
)


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    found = MetadataLog(tmp_path / "__cluster_metadata-0")
    found.leader(1_700_000_000_000, 1, 1)
    for record in RECORDS:
        found.add(1_700_000_001_000, record)
    return found


class Terminal:
    def __init__(self, log: MetadataLog, **more: object) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        state = Opened(MetadataAt(find([log.directory])[0]))
        self.shell = Shell(state, self.lines.append, self.errors.append, **more)  # type: ignore[arg-type]

    def __call__(self, *words: str) -> list[str]:
        """What a command prints. Errors must be looked at before the next one."""
        assert self.errors == []
        self.lines.clear()
        assert self.shell.run(list(words)) == (not self.errors)
        return list(self.lines)

    def fails(self, *words: str) -> list[str]:
        self.lines.clear()
        assert not self.shell.run(list(words))
        found, self.errors[:] = list(self.errors), []
        return found


@pytest.fixture
def run(log: MetadataLog) -> Terminal:
    return Terminal(log)


def test_to_22_the_tree_is_kafkas(run: Terminal) -> None:
    assert run("ls", "/") == ["image", "local"]
    assert run("ls", "/local") == ["commitId", "version"]
    assert run("ls", "/image") == [
        "acls",
        "clientQuotas",
        "cluster",
        "configs",
        "delegationToken",
        "features",
        "producerIds",
        "provenance",
        "scram",
        "topics",
    ]
    assert run("ls", "/image/configs") == ["BROKER", "GROUP:g", "TOPIC:orders"]
    assert run("ls", "/image/features") == ["finalized_group.version", "metadataVersion"]
    assert run("ls", "/image/scram") == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert run("ls", "/image/topics/byName/orders") == ["0", "1", "2", "id", "name"]
    assert run("ls", "/image/topics/byId") == [uuid_to_str(A)]


def test_to_22_the_contents_are_kafkas(run: Terminal) -> None:
    assert run("cat", "/image/provenance") == ["offset 15, epoch 1, time 2023-11-14T22:13:21Z[UTC]"]
    assert run("cat", "/image/features/metadataVersion") == ["Optional[4.3-IV0]"]
    assert run("cat", "/image/features/finalized_nothing") == ["0"]
    assert run("cat", "/image/producerIds/nextProducerId") == ["3000"]
    assert run("cat", "/image/topics/byName/orders/1") == [
        "PartitionRegistration(replicas=[1, 2], directories=[AAAAAAAAAAAAAAAAAAAH0Q, AAAAAAAAAAAAAAAAAAAH0g], isr=[1, 2], "
        "removingReplicas=[], addingReplicas=[], elr=[], lastKnownElr=[], leader=1, leaderRecoveryState=RECOVERED, "
        "leaderEpoch=0, partitionEpoch=0)"
    ]
    assert run("cat", "/image/cluster/brokers/2") == [
        "BrokerRegistration(id=2, epoch=11, incarnationId=AAAAAAAAAAAAAAAAAAAD6g, listeners=[Endpoint(listenerName='PLAINTEXT', "
        "securityProtocol=PLAINTEXT, host='h', port=9094)], supportedFeatures={metadata.version: 7-30}, rack=Optional.empty, "
        "fenced=false, inControlledShutdown=false, isMigratingZkBroker=false, directories=[AAAAAAAAAAAAAAAAAAAH0g], "
        "cordonedDirectories=null)"
    ]
    assert run("cat", "/image/scram/SCRAM-SHA-256/alice") == [
        "ScramCredentialData(salt=01ff, storedKey=6b, serverKey=73, iterations=4096)"
    ]
    assert run("tree", "/image/clientQuotas") == [
        "clientId(c)_user(a\\(b\\)):",
        "  producer_byte_rate:",
        "    1048576.0",
        "userDefault:",
        "  request_percentage:",
        "    12.5",
    ]


def test_find_and_tree_go_down(run: Terminal) -> None:
    assert run("find", "/image/producerIds") == ["/image/producerIds", "/image/producerIds/nextProducerId"]
    assert run("find", "/")[:3] == ["/", "/image", "/image/acls"]
    assert run("tree", "/image/producerIds") == ["nextProducerId:", "  3000"]
    assert run("tree", "/image/provenance") == run("cat", "/image/provenance")
    assert set(run("find", "/image")) == {line for line in run("find", "/") if line.startswith("/image")}


def test_ls_of_several_names_them(run: Terminal) -> None:
    assert run("ls", "/image/provenance", "/image/acls", "/local") == [
        "provenance",
        "",
        "acls:",
        "byId",
        "",
        "local:",
        "commitId",
        "version",
    ]
    assert run("ls", "/image/acls/byId", "/local")[0] == ""  # an empty directory has no heading, but a gap behind it
    assert run("ls", "/image/p*") == ["provenance", "", "producerIds:", "nextProducerId"]


def test_what_is_not_there(run: Terminal) -> None:
    assert run.fails("ls", "/nope") == ["ls: /nope: no such file or directory."]
    assert run.fails("cat", "/nope", "/image") == ["cat: /nope: No such file or directory.", "cat: /image: Is a directory"]
    assert run.fails("find", "/image/*x") == ["find: /image/*x: no such file or directory."]
    assert run.fails("tree", "/image/provenance/x") == ["tree: /image/provenance/x: No such file or directory."]
    assert run.fails("cd", "/image/provenance") == ["cd: /image/provenance: not a directory."]
    assert run.fails("cd", "nope") == ["cd: nope: no such directory."]
    assert run.fails("man", "nope") == ["man: unknown command nope. Type help to get a list of commands."]
    assert run.fails("cat") == ["cat: allowed is cat PATH…"]
    assert run.fails("diff", "1", "2", "3") == ["diff: allowed is diff OFFSET [OFFSET]"]
    assert "there is no such command; allowed is one of at, cat" in run.fails("frob")[0]


def test_paths_are_seen_from_the_directory(run: Terminal) -> None:
    assert run("pwd") == ["/"]
    run("cd", "image/topics")
    assert run("pwd") == ["/image/topics"]
    assert run("ls") == run("ls", ".") == ["byId", "byName"]
    assert run("ls", "byName") == ["orders"]
    assert run("ls", "../../local") == ["commitId", "version"]
    run("cd", "../../../..")
    assert run("pwd") == ["/"]
    run("cd", "/image/cluster")
    run("cd")
    assert run("pwd") == ["/"]


def test_a_path_may_leave_out_the_image(run: Terminal, log: MetadataLog) -> None:
    assert run("ls", "/topics/byName") == ["orders"]
    assert run("cat", "/provenance") == run("cat", "/image/provenance")
    assert run("ls", "/*")[0] == "image:"
    strict = Terminal(log, short=False)
    assert strict.fails("ls", "/topics") == ["ls: /topics: no such file or directory."]


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        ("a*", ["a", "abc"], ["ba"]),
        ("a?c", ["abc", "a/c"], ["ac"]),
        ("{ab,c}", ["ab", "c"], ["b", "abc"]),
        ("a.b*", ["a.b", "a.bc"], ["axb"]),
        ("x\\**", ["x*", "x*y"], ["xy"]),
        ("(a)*", ["(a)", "(a)b"], ["a"]),
        ("a,b?", ["a,bc"], ["a"]),
    ],
)
def test_globs(glob: str, matching: list[str], other: list[str]) -> None:
    found = pattern(glob)
    assert found is not None
    assert [name for name in matching + other if found.fullmatch(name)] == matching


@pytest.mark.parametrize("literal", ["a", "a.b", "{a", "{a,{b}}", "[a]", "a,b}", "a\\b", "*" * 5000])
def test_what_is_no_glob_stands_for_itself(literal: str) -> None:
    assert pattern(literal) is None


def test_components() -> None:
    assert components("/a//b/./c/../d/") == ["a", "b", "d"]
    assert components("b", "/a") == ["a", "b"]
    assert components("../../..", "/a/b") == []


def test_columns_fill_the_width() -> None:
    names = ["aa", "bbbb", "c", "dd", "e"]
    assert list(in_columns(names, None)) == names
    assert list(in_columns(names, 5)) == names
    assert list(in_columns(names, 80)) == ["aa  bbbb  c  dd  e"]
    assert list(in_columns(names, 16)) == ["aa    c   e", "bbbb  dd"]
    assert list(in_columns([], 80)) == []


def test_words_are_completed(run: Terminal) -> None:
    complete = run.shell.complete
    assert complete("h") == ["help ", "history "]
    assert complete("ls /im") == ["/image/"]
    assert complete("cat /image/pro") == ["/image/producerIds/", "/image/provenance "]
    assert complete("ls /to") == ["/topics/"]
    assert complete("cat /topics/byName/o") == ["/topics/byName/orders/"]
    assert complete("ls /image /lo") == ["/local/"]
    assert complete("man t") == ["tree"]
    assert complete("at 1") == complete("nope /im") == complete("ls /image/provenance/x") == []
    run("cd", "/image/topics")
    assert complete("ls by") == ["byId/", "byName/"]


def test_help(run: Terminal) -> None:
    assert len(run("help")) == len(COMMANDS)
    assert run("man", "ls") == ["ls: List metadata nodes.", "", "usage: ls [PATH]…"]
    with pytest.raises(Ended):
        run("exit")


# --- time


@pytest.fixture
def later(log: MetadataLog) -> MetadataLog:
    """16: broker 2 is fenced, and 17: orders-0 led by 2; 18: another controller; 19 and 20: a config; 21: the topic is gone."""
    log.add(
        1_700_000_009_500,
        BrokerRegistrationChangeRecord(broker_id=NodeId(2), broker_epoch=11, fenced=True),
        PartitionChangeRecord(topic_id=A, partition=0, isr=nodes(2), leader=NodeId(2)),
    )
    log.leader(1_700_000_010_000, 3, 2)
    log.add(1_700_000_011_000, ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="200"))
    log.add(1_700_000_012_000, ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value=None))
    log.add(1_700_000_013_000, RemoveTopicRecord(topic_id=A))
    return log


def words(line: str) -> str:
    """Without the time, which is shown in the zone of the machine."""
    place, _, rest = line.partition("  ")
    return f"{place}  {rest.partition('  ')[2]}"


def test_to_41_history_says_who_when_and_what(later: MetadataLog) -> None:
    run = Terminal(later)
    assert [words(line) for line in run("history", "/topics/byName/orders/0")] == [
        "@5  controller 1, epoch 1  Topic  /image/topics/byName/orders: created: AAAAAAAAAAAAAAAAAAAAAQ",
        "@6  controller 1, epoch 1  Partition  /image/topics/byName/orders/0: created: PartitionRegistration(replicas=[1, 2], "
        "directories=[AAAAAAAAAAAAAAAAAAAH0Q, AAAAAAAAAAAAAAAAAAAH0g], isr=[1, 2], removingReplicas=[], addingReplicas=[], "
        "elr=[], lastKnownElr=[], leader=1, leaderRecoveryState=RECOVERED, leaderEpoch=0, partitionEpoch=0)",
        "@17  controller 1, epoch 1  PartitionChange  /image/topics/byName/orders/0: isr [1, 2] → [2], leader 1 → 2, "
        "leaderEpoch 0 → 1, partitionEpoch 0 → 1",
        "@21  controller 3, epoch 2  RemoveTopic  /image/topics/byName/orders: removed: AAAAAAAAAAAAAAAAAAAAAQ",
    ]
    assert [words(line) for line in run("history", "/configs/TOPIC:orders")] == [
        "@9  controller 1, epoch 1  Config  /image/configs/TOPIC:orders/retention.ms: created: 100",
        "@19  controller 3, epoch 2  Config  /image/configs/TOPIC:orders/retention.ms: 100 → 200",
        "@20  controller 3, epoch 2  Config  /image/configs/TOPIC:orders/retention.ms: removed: 200",
    ]
    assert [words(line) for line in run("history", "/cluster/brokers/2")][-1] == (
        "@16  controller 1, epoch 1  BrokerRegistrationChange  /image/cluster/brokers/2: fenced false → true"
    )
    by_id = run("history", f"/image/topics/byId/{uuid_to_str(A)}/0")
    assert [line.partition("  ")[0] for line in by_id] == ["@5", "@6", "@17", "@21"]
    assert f"/image/topics/byId/{uuid_to_str(A)}/0: isr" in by_id[2]
    assert len(run("history", "/scram")) == len(run("history", "/producerIds/nextProducerId")) == 1
    assert len(run("history", "/clientQuotas/user*")) == 1
    assert len(run("history", "/features/*")) == 2
    assert run.fails("history", "/acls") == ["history: /acls: no record from the beginning changed it."]


def test_history_goes_as_far_as_what_is_looked_at(later: MetadataLog) -> None:
    run = Terminal(later)
    run("at", "10")
    assert [line.partition("  ")[0] for line in run("history", "/topics/byName/orders/0")] == ["@5", "@6"]


def test_to_41_diff_shows_what_is_not_the_same(later: MetadataLog) -> None:
    run = Terminal(later)
    assert run("diff", "15", "19") == [
        "--- offset 15, epoch 1, time 2023-11-14T22:13:21Z[UTC]",
        "+++ offset 19, epoch 2, time 2023-11-14T22:13:31Z[UTC]",
        "~ /image/cluster/brokers/2: fenced false → true",
        "~ /image/configs/TOPIC:orders/retention.ms: 100 → 200",
        "~ /image/topics/byName/orders/0: isr [1, 2] → [2], leader 1 → 2, leaderEpoch 0 → 1, partitionEpoch 0 → 1",
    ]
    assert run("diff", "19", "15")[3] == "~ /image/configs/TOPIC:orders/retention.ms: 200 → 100"
    gone = run("diff", "19")[2:]
    assert gone[0] == "- /image/configs/TOPIC:orders/retention.ms: 200"
    assert [line.partition(":")[0] for line in gone[1:]] == [
        f"- /image/topics/byName/orders/{name}" for name in ("0", "1", "2", "id", "name")
    ]
    assert run("diff", "5", "5")[2:] == []
    assert run.fails("diff", "5", "22")[0].startswith("diff: there is no offset 22; the last that can be read is 21")
    assert run.fails("diff", "x") == ["diff: x: allowed is an offset, a number from 0 on"]


def test_to_41_time_travel(later: MetadataLog) -> None:
    run = Terminal(later)
    assert run("ls", "/topics/byName") == []
    assert run("at", "9") == ["offset 9, epoch 1, time 2023-11-14T22:13:21Z[UTC]"]
    assert run("ls", "/topics/byName") == ["orders"] and run("at") == run("cat", "/provenance")
    assert run("at", "end")[0].startswith("offset 21,")
    assert "there is no offset 22" in run.fails("at", "22")[0]
    assert run("at")[0].startswith("offset 21,")
