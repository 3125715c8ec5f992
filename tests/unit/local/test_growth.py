"""What growing and shrinking do to the description and the files of a local cluster, before any node is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kraftlite.client.errors import ClientError
from kraftlite.config.properties import parse_properties
from kraftlite.config.server import load as load_config
from kraftlite.local import cluster as local
from kraftlite.local import growth, secure
from kraftlite.local.layout import counted, grown, plan, rewrite_files, with_metrics_ports, write_files
from kraftlite.local.state import STATE_NAME, LocalCluster, LocalError, load, save
from kraftlite.model.ids import uuid_from_str


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports are reserved in a file of this test."""
    import tempfile

    (tmp_path / "tmp").mkdir()
    monkeypatch.setitem(tempfile.__dict__, "tempdir", str(tmp_path / "tmp"))


def planned(tmp_path: Path, **more: bool) -> LocalCluster:
    data_dir = tmp_path / "cluster"
    data_dir.mkdir()
    made = plan(data_dir, controllers=3, brokers=2, combined=False, **more)
    if made.secure:
        secure.create(made)
    write_files(made, {"num.partitions": "7"})
    save(made)
    return made


def values(cluster: LocalCluster, node_id: int) -> dict[str, str]:
    return {item.key: item.value for item in parse_properties(cluster.node(node_id).config_path.read_text())}


def test_a_new_cluster_has_its_voters_in_the_log(tmp_path: Path) -> None:
    made = planned(tmp_path)
    assert made.dynamic
    directories = [node.directory_id for node in made.nodes]
    assert len({uuid_from_str(it) for it in directories[:3] if it}) == 3 and directories[3:] == [None, None]
    assert made.first_voters == ",".join(f"{it.id}@{it.controller}:{it.directory_id}" for it in made.nodes[:3])
    for node in made.nodes:
        config = load_config(node.config_path)
        assert config.quorum_voters == ()
        assert [str(it) for it in config.quorum_bootstrap_servers] == [it.controller for it in made.nodes[:3]]


def test_a_cluster_of_an_earlier_version_keeps_its_configured_voters(tmp_path: Path) -> None:
    made = planned(tmp_path)
    path = Path(made.data_dir) / STATE_NAME
    raw = json.loads(path.read_text())
    del raw["dynamic"]
    for node in raw["nodes"]:
        del node["directory_id"]
    path.write_text(json.dumps(raw))
    old = load(Path(made.data_dir))
    assert not old.dynamic and old.first_voters == ""
    write_files(old, {})
    assert values(old, 4)["controller.quorum.voters"] == ",".join(f"{it.id}@{it.controller}" for it in old.nodes[:3])
    assert "controller.quorum.bootstrap.servers" not in values(old, 4)
    after, node = grown(old, "broker")
    rewrite_files(old, after)
    assert values(after, node.id)["controller.quorum.voters"] == values(old, 4)["controller.quorum.voters"]
    dynamic = replace(after, dynamic=True)
    rewrite_files(after, dynamic)
    assert "controller.quorum.voters" not in values(dynamic, 4)
    assert "controller.quorum.bootstrap.servers" in values(dynamic, 4)


def test_new_nodes_get_ids_ports_and_directories_of_their_own(tmp_path: Path) -> None:
    made = planned(tmp_path)
    more, broker = grown(made, "broker")
    save(more)
    most, controller = grown(more, "controller")
    assert (broker.id, broker.roles, controller.id, controller.roles) == (6, ("broker",), 7, ("controller",))
    assert (most.controllers, most.brokers) == (4, 3)
    addresses = [address for node in most.nodes for address in node.addresses]
    assert len(set(addresses)) == len(addresses)
    assert controller.directory_id is not None and broker.directory_id is None
    assert most.first_voters.count("@") == 4


def test_a_new_node_gets_what_all_were_given_and_the_others_learn_of_it(tmp_path: Path) -> None:
    made = planned(tmp_path)
    path = made.node(4).config_path
    path.write_text(path.read_text() + "message.max.bytes=333333\n")
    after, node = grown(made, "controller")
    rewrite_files(made, after)
    new = values(after, node.id)
    assert new["num.partitions"] == "7" and "message.max.bytes" not in new
    assert values(after, 4)["message.max.bytes"] == "333333", "what somebody wrote into one file stays there"
    for one in after.nodes:
        config = load_config(one.config_path)
        assert str(node.controller) in [str(it) for it in config.quorum_bootstrap_servers]
        assert config.warnings == ()
    less = counted(replace(after, nodes=after.nodes[1:]))
    rewrite_files(after, less)
    assert str(after.node(1).controller) not in values(less, 4)["controller.quorum.bootstrap.servers"]
    assert less.controllers == 3


def test_what_was_changed_by_hand_is_not_overwritten(tmp_path: Path) -> None:
    made = planned(tmp_path)
    path = made.node(4).config_path
    mine = "controller.quorum.bootstrap.servers=127.0.0.1:1"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("controller.quorum.bootstrap")]
    path.write_text("\n".join([*lines, mine, ""]))
    after, _ = grown(made, "controller")
    rewrite_files(made, after)
    assert values(after, 4)["controller.quorum.bootstrap.servers"] == "127.0.0.1:1"


def test_a_new_node_has_a_page_of_metrics_if_the_others_have(tmp_path: Path) -> None:
    made = planned(tmp_path)
    extra = {"kraftlite.metrics.port": "0", "kraftlite.metrics.host": "localhost"}
    paged = with_metrics_ports(made, extra)
    write_files(paged, extra)
    after, node = grown(paged, "broker")
    rewrite_files(paged, after)
    pages = [it.metrics for it in after.nodes]
    assert len(set(pages)) == 6 and str(node.metrics).startswith("localhost:")
    assert values(after, node.id)["kraftlite.metrics.port"] == str(node.metrics).rpartition(":")[2]


def test_a_secure_cluster_writes_new_addresses_into_its_users_files(tmp_path: Path) -> None:
    made = planned(tmp_path, secure=True)
    before = json.loads((secure.client_dir(Path(made.data_dir), "alice") / "python.json").read_text())
    after, node = grown(made, "broker")
    secure.issue_node(after, node, secure.authority_of(after))
    rewrite_files(made, after)
    secure.rewrite_client_files(after)
    now = json.loads((secure.client_dir(Path(made.data_dir), "alice") / "python.json").read_text())
    assert node.kafka in now["bootstrap_servers"] and node.kafka not in before["bootstrap_servers"]
    assert now["sasl_plain_password"] == before["sasl_plain_password"]
    assert f"User:node-{node.id}" in values(after, 4)["super.users"].split(";")
    assert load_config(node.config_path).warnings == ()


def test_nothing_is_changed_while_nothing_runs(tmp_path: Path) -> None:
    made = planned(tmp_path)
    data_dir = Path(made.data_dir)
    for change in (growth.add_broker, growth.add_controller):
        with pytest.raises(LocalError, match=r"no controller of the cluster in .* runs: kraftlite up"):
            change(data_dir)
    for remove in (growth.remove_broker, growth.remove_controller):
        with pytest.raises(LocalError, match=r"no controller of the cluster in .* runs: kraftlite up"):
            remove(data_dir, 4)
    assert load(data_dir) == made


def test_dq_44_a_controller_without_its_disk_is_told_how_to_go_on(tmp_path: Path) -> None:
    made = planned(tmp_path)
    Path(made.node(2).data_dir).mkdir()
    with pytest.raises(LocalError, match=r"controller 2 has lost its disk.*remove-controller 2, then kraftlite add-controller$"):
        local.start(made, [made.node(2)])
    with pytest.raises(LocalError, match=r"controller 3 has never run, .*remove-controller 3, then kraftlite add-controller$"):
        local.start(made, [made.node(3)])  # whose add-controller was killed
    both = replace(made.node(2), roles=("broker", "controller"), kafka="127.0.0.1:1", replication="127.0.0.1:2")
    with pytest.raises(LocalError, match=r"remove-broker 2, then kraftlite add-controller and kraftlite add-broker$"):
        local.start(replace(made, nodes=(both,)), [both])


@pytest.mark.parametrize("value", ["short", "A" * 22, 7])
def test_a_directory_id_that_is_none_is_refused(tmp_path: Path, value: object) -> None:
    made = planned(tmp_path)
    path = Path(made.data_dir) / STATE_NAME
    raw = json.loads(path.read_text())
    raw["nodes"][0]["directory_id"] = value
    path.write_text(json.dumps(raw))
    with pytest.raises(LocalError, match="directory_id"):
        load(Path(made.data_dir))


class Nobody:
    """Controllers that cannot be asked."""

    def call(self, *_: object) -> None:
        raise ClientError("nobody answers")


@pytest.mark.parametrize("error", [KeyboardInterrupt, LocalError("it ended")])
def test_a_node_that_does_not_come_to_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | type[BaseException]
) -> None:
    made = planned(tmp_path)
    before = {node.id: values(made, node.id) for node in made.nodes}

    def start(after: LocalCluster, *_: object, **__: object) -> None:
        assert len(load(tmp_path / "cluster").nodes) == 6
        raise error

    monkeypatch.setitem(growth.__dict__, "start", start)
    with pytest.raises(BaseException) as raised:
        growth._joined(made, "broker", Nobody(), None)  # type: ignore[arg-type]
    assert raised.value is error or type(raised.value) is error
    assert load(tmp_path / "cluster") == made
    assert not (tmp_path / "cluster" / "node-6").exists()
    assert {node.id: values(made, node.id) for node in made.nodes} == before


def test_a_broker_whose_command_was_killed_is_formatted_by_the_next_up_and_in_no_command_s_way(tmp_path: Path) -> None:
    made = planned(tmp_path)
    after, node = grown(made, "broker")
    save(after)  # and it was killed: as earlier versions wrote it, there is no file of the node
    further, other = grown(after, "broker")
    rewrite_files(after, further)
    assert values(further, node.id)["num.partitions"] == values(further, other.id)["num.partitions"] == "7"
    assert local._is_new(node)
    assert not local._is_new(after.nodes[0]), "a controller, which the quorum knows by its directory"
    node.log_path.touch()
    assert not local._is_new(node), "it ran, and has lost its disk"
