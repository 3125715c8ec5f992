"""What `KRAFTLITE_SECURE=1` makes of the nodes of docker-compose.yml."""

from __future__ import annotations

import io
import json
import re
import stat
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509

from kraftlite.cli.main import cli
from kraftlite.config.server import load as load_config
from kraftlite.local import container
from kraftlite.local.secure import client_dir, secure_dir
from kraftlite.local.state import LocalError, load
from kraftlite.security.first_users import FIRST_USERS

ROOT = Path(__file__).resolve().parents[3]
LISTED = "1@controller-1:9093,2@controller-2:9093,4@kafka-1:9192:29092:29093,5@kafka-2:9192:39092:39093"
ID = "5L6g3nShT-eMCtK--X86sw"
VOTERS = "1@controller-1:9093:f7XWH2U8RqiqhQo4j3_YQA,2@controller-2:9093:luhl6-V3T4mav8EfICTRNw"


def environment(tmp_path: Path, node: int, **more: str) -> dict[str, str]:
    """That of a node of the compose file; 4 and above are brokers."""
    name = f"kafka-{node - 3}"
    broker = {
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_LISTENERS": "INTERNAL://:19092,HOST://:9092,REPLICATION://:9192",
        "KAFKA_ADVERTISED_LISTENERS": f"INTERNAL://{name}:19092,HOST://localhost:29092,REPLICATION://{name}:9192",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "REPLICATION",
    }
    return {
        "CLUSTER_ID": ID,
        "KAFKA_NODE_ID": str(node),
        "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "controller-1:9093,controller-2:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:GRPC,REPLICATION:GRPC,INTERNAL:PLAINTEXT,HOST:PLAINTEXT",
        "KAFKA_LOG_DIRS": str(tmp_path / f"data-{node}"),
        "KRAFTLITE_INITIAL_CONTROLLERS": VOTERS,
        "KRAFTLITE_SECURE_NODES": LISTED,
        "KRAFTLITE_DATA_DIR": str(tmp_path / "cluster"),
        **(broker if node > 3 else {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_LISTENERS": "CONTROLLER://:9093"}),
        **more,
    }


def closed(tmp_path: Path, node: int, **more: str) -> dict[str, str]:
    return environment(tmp_path, node, KRAFTLITE_SECURE="1", **more)


def run(env: dict[str, str], *args: str) -> str:
    done = CliRunner().invoke(cli, list(args), env=env)
    assert done.exit_code == 0, done.output
    return done.output


def refused(env: dict[str, str], *args: str) -> str:
    done = CliRunner().invoke(cli, list(args), env=env)
    assert done.exit_code != 0, done.output
    assert isinstance(done.exception, SystemExit), "a sentence, and no stack"
    return done.output


def test_nothing_changes_without_the_variable(tmp_path: Path) -> None:
    for word in ("", "0", "no"):
        env = environment(tmp_path, 4, KRAFTLITE_SECURE=word)
        assert container.closing(env) == {}
        assert container.make(env, formatted=False) == ()
    run(environment(tmp_path, 1), "format")
    assert not (tmp_path / "cluster").exists()


def test_an_open_cluster_is_described_where_its_supervisors_are(tmp_path: Path) -> None:
    """And stays open: the description is no certificate. It follows the environment."""
    env = environment(tmp_path, 4)
    cluster = container.described(env)
    assert cluster is not None and load(tmp_path / "cluster") == cluster
    assert (cluster.secure, cluster.controllers, cluster.brokers) == (False, 2, 2)
    assert [(node.id, node.grpc, node.kafka, node.tls) for node in cluster.nodes[1:3]] == [
        (2, "controller-2:9093", None, None),
        (4, "kafka-1:9192", "localhost:29092", None),
    ]
    assert container.closing(env) == {} and container.make(env, formatted=True) == ()
    container.described({**env, "KRAFTLITE_SECURE_NODES": LISTED.partition(",")[0]})
    assert [node.id for node in load(tmp_path / "cluster").nodes] == [1]
    run(environment(tmp_path, 1), "format")
    assert "was made open, and cannot be closed later" in refused(closed(tmp_path, 1), "format", "--ignore-formatted")


def test_what_runs_in_a_container_without_a_supervisor_is_not_said_to_be_stopped(tmp_path: Path) -> None:
    """Nobody there says, so nobody claims it; and whoever wants to kill it is told how."""
    cluster = container.described(environment(tmp_path, 4))
    assert cluster is not None and cluster.is_contained
    assert {node.state for node in load(tmp_path / "cluster").nodes} == {"unknown"}
    env = {"KRAFTLITE_DATA_DIR": str(tmp_path / "cluster")}
    for command in ("kill", "pause", "resume", "restart"):
        said = refused(env, command, "4")
        assert "node 4 runs in a container without a supervisor: KRAFTLITE_FAULTS=true docker compose up -d" in said
    assert "run in containers: docker compose down" in refused(env, "down")
    assert "unknown" in run(env, "ps")


def test_certificates_of_an_earlier_version_are_taken_over(tmp_path: Path) -> None:
    """Its description does not say that the nodes are in containers."""
    env = closed(tmp_path, 4)
    container.make(env, formatted=False)
    path = tmp_path / "cluster" / "cluster.json"
    before = path.read_text()
    described = json.loads(before)
    for node in described["nodes"]:
        del node["contained"]
    path.write_text(json.dumps(described))
    assert not load(tmp_path / "cluster").is_contained
    container.make(env, formatted=True)
    assert path.read_text() == before


def test_the_page_finds_the_cluster_of_its_environment(tmp_path: Path) -> None:
    """An open one at once; a closed one as soon as a node has made the certificates, which the page itself does not."""
    container.found(environment(tmp_path / "open", 4), 0)
    assert load(tmp_path / "open" / "cluster").brokers == 2
    env = closed(tmp_path / "closed", 4)
    with pytest.raises(LocalError, match="no node has made the certificates"):
        container.found(env, 0)
    container.make(env, formatted=False)
    container.found(env, 0)
    container.found({"KRAFTLITE_DATA_DIR": str(tmp_path / "other")}, 0)
    assert not (tmp_path / "other").exists()


def test_a_closed_cluster_is_described_as_it_was_made(tmp_path: Path) -> None:
    env = closed(tmp_path, 4)
    container.make(env, formatted=False)
    made = load(tmp_path / "cluster")
    assert container.described(env) == made == load(tmp_path / "cluster") and made.secure
    assert container.described({**env, "KRAFTLITE_SECURE": "", "KRAFTLITE_SECURE_NODES": ""}) is None


@pytest.mark.parametrize("word", ["2", "maybe", "ssl"])
def test_another_value_is_an_error_that_names_what_is_allowed(tmp_path: Path, word: str) -> None:
    found = refused(environment(tmp_path, 4, KRAFTLITE_SECURE=word), "format")
    assert f"KRAFTLITE_SECURE='{word}': allowed are 1, true, yes, on, 0, false, no, off, or nothing" in found


def test_every_listener_of_a_node_is_closed(tmp_path: Path) -> None:
    for node in (1, 4):
        env = closed(tmp_path, node)
        run(env, "format")
        config = load_config(None, env, container.closing(env), hostname=lambda: "here")
        protocols = {it.name: it.security_protocol for it in config.listeners}
        if node == 1:
            assert protocols == {"CONTROLLER": "GRPC_TLS"}
            continue
        assert protocols == {"INTERNAL": "SASL_SSL", "HOST": "SASL_SSL", "REPLICATION": "GRPC_TLS", "SSL": "SSL"}
        given = {line.key: line.value for line in config.explain()}
        assert given["super.users"] == "User:admin;User:node-1;User:node-2;User:node-4;User:node-5"
        assert given["advertised.listeners"].endswith(",SSL://localhost:29093")
        assert given["ssl.client.auth"] == "required"
        assert given["listener.name.host.ssl.client.auth"] == given["listener.name.internal.ssl.client.auth"] == "none"
        shown = run(env, "config", "explain")
        assert "StandardAuthorizer" in shown


def test_the_first_node_makes_what_all_find(tmp_path: Path) -> None:
    """Salted credentials and certificates are the same for all; only the owner reads them."""
    first = container.make(closed(tmp_path, 1), formatted=False)
    assert [item.split('name="')[1].split('"')[0] for item in first] == list(FIRST_USERS)
    directory = secure_dir(tmp_path / "cluster")
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert container.make(closed(tmp_path, 5), formatted=False) == first
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in before} == {0o600}
    for node, name in ((2, "controller-2"), (4, "kafka-1")):
        certificate = x509.load_pem_x509_certificate(before[directory / f"node-{node}.pem"])
        hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert hosts.get_values_for_type(x509.DNSName) == ["localhost", name]


def test_a_node_that_was_stopped_while_it_made_them_leaves_nothing_half(tmp_path: Path) -> None:
    directory = secure_dir(tmp_path / "cluster")
    directory.mkdir(parents=True)
    (directory / "ca.key").write_text("half")
    assert len(container.make(closed(tmp_path, 1), formatted=False)) == len(FIRST_USERS)
    assert (directory / "ca.key").read_text() != "half"


def test_an_open_cluster_is_not_closed_later_and_a_closed_one_stays_so(tmp_path: Path) -> None:
    run(environment(tmp_path, 1), "format")
    assert "was made open, and cannot be closed later" in refused(closed(tmp_path, 1), "format", "--ignore-formatted")
    assert not (tmp_path / "cluster" / "secure").exists()
    run(closed(tmp_path, 4), "format")
    assert container.closing(environment(tmp_path, 4)) == container.closing(closed(tmp_path, 4)) != {}
    assert "was made closed, and stays so" in refused(environment(tmp_path, 4, KRAFTLITE_SECURE="0"), "start")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"KRAFTLITE_SECURE_NODES": ""}, "KRAFTLITE_SECURE_NODES is missing"),
        ({"KRAFTLITE_SECURE_NODES": "4@kafka-1"}, "'4@kafka-1'; allowed is ID@HOST:PORT"),
        ({"KRAFTLITE_SECURE_NODES": "4@kafka-1:9192:0:1"}, "with ports from 1 to 65535"),
        ({"KRAFTLITE_SECURE_NODES": f"{LISTED},4@kafka-9:9192"}, "each with an id of its own"),
        ({"KAFKA_NODE_ID": "7"}, "KAFKA_NODE_ID=7: KRAFTLITE_SECURE_NODES lists 1, 2, 4, 5"),
        ({"KAFKA_PROCESS_ROLES": "controller"}, "says broker of node 4"),
        ({"KAFKA_LISTENERS": ""}, "KAFKA_LISTENERS is missing"),
        ({"CLUSTER_ID": ""}, "CLUSTER_ID is missing"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tmp_path: Path, more: dict[str, str], says: str) -> None:
    with pytest.raises(LocalError, match=re.escape(says)):
        container.closing(closed(tmp_path, 4, **more))


def test_certificates_of_other_nodes_are_refused(tmp_path: Path) -> None:
    container.make(closed(tmp_path, 1), formatted=False)
    with pytest.raises(LocalError, match="certificates of another cluster or of other nodes"):
        container.make(closed(tmp_path, 1, KRAFTLITE_SECURE_NODES=f"{LISTED},6@kafka-3:9192:1:2"), formatted=False)


def test_client_files_hold_where_they_are_unpacked(tmp_path: Path) -> None:
    env = closed(tmp_path, 1)
    container.make(env, formatted=False)
    done = CliRunner().invoke(cli, ["user", "export", "alice", "--into", "/home/me"], env=env)
    assert done.exit_code == 0
    with tarfile.open(fileobj=io.BytesIO(done.stdout_bytes)) as archive:
        entries = {it.name: it for it in archive.getmembers()}
        texts = {name: archive.extractfile(it).read() for name, it in entries.items()}  # type: ignore[union-attr]
    assert {it.mode for it in entries.values()} == {0o600}
    own = client_dir(tmp_path / "cluster", "alice")
    assert set(entries) == {"secure/ca.pem", *(f"secure/clients/alice/{path.name}" for path in own.iterdir())}
    found = json.loads(texts["secure/clients/alice/python.json"])
    assert found["bootstrap_servers"] == ["localhost:29092", "localhost:39092"]
    assert found["ssl_cafile"] == "/home/me/secure/ca.pem"
    assert found["sasl_plain_password"] == json.loads((own / "python.json").read_text())["sasl_plain_password"]
    assert b"/home/me/secure/clients/alice/user.pem" in texts["secure/clients/alice/client-mtls.properties"]
    assert str(tmp_path).encode() not in b"".join(texts.values())
    assert "allowed are admin, alice, bob" in refused(env, "user", "export", "carol", "--into", "/home/me")
    assert "allowed is an absolute path" in refused(env, "user", "export", "--into", "here")


def test_the_compose_file_lists_its_nodes(tmp_path: Path) -> None:
    """Its list, ids and published ports say the same."""
    text = (ROOT / "docker-compose.yml").read_text()
    listed = re.search(r"KRAFTLITE_SECURE_NODES: >-\s+(\S+)", text)
    assert listed is not None
    container.make(closed(tmp_path, 1, KRAFTLITE_SECURE_NODES=listed[1]), formatted=False)
    nodes = load(tmp_path / "cluster").nodes
    services = dict(re.findall(r"container_name: ((?:kafka|controller)-\d).*?KAFKA_NODE_ID: (\d+)", text, re.DOTALL))
    assert {it.grpc.rpartition(":")[0]: str(it.id) for it in nodes} == services
    published = dict(re.findall(r'ports: \["(\d+):9092", "(\d+):9093"\]', text))
    assert {f"localhost:{one}": f"localhost:{two}" for one, two in published.items()} == {
        it.kafka: it.tls for it in nodes if it.kafka
    }
