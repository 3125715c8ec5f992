"""Certificates, users and client files of a local cluster that is closed."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import stat
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

from kraftlite.cli.main import cli
from kraftlite.client.properties import settings_from
from kraftlite.client.security import tls_context
from kraftlite.config.properties import parse_properties
from kraftlite.local import secure
from kraftlite.local.layout import plan, write_files
from kraftlite.local.state import LocalCluster, LocalError, load, save
from kraftlite.security.first_users import FIRST_USERS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> LocalCluster:
    found = plan(tmp_path_factory.mktemp("secure"), controllers=1, brokers=2, combined=False, secure=True)
    secure.create(found)
    write_files(found, {})
    return found


def files_of(cluster: LocalCluster) -> list[Path]:
    return [path for path in secure.secure_dir(Path(cluster.data_dir)).rglob("*") if path.is_file()]


def test_nobody_else_may_read_what_is_secret(cluster: LocalCluster) -> None:
    files = files_of(cluster)
    assert len(files) > 30
    assert [path for path in files if stat.S_IMODE(path.stat().st_mode) != 0o600] == []


def test_a_node_is_trusted_at_its_address_and_a_user_is_no_server(cluster: LocalCluster) -> None:
    directory = secure.secure_dir(Path(cluster.data_dir))
    authority = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    node = x509.load_pem_x509_certificate((directory / "node-2.pem").read_bytes())
    alice = x509.load_pem_x509_certificate((secure.client_dir(Path(cluster.data_dir), "alice") / "user.pem").read_bytes())
    node.verify_directly_issued_by(authority)
    alice.verify_directly_issued_by(authority)
    hosts = node.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost"]
    assert node.subject.rfc4514_string() == "CN=node-2"
    assert alice.subject.rfc4514_string() == "CN=alice"
    usage = x509.ExtendedKeyUsage
    server = x509.oid.ExtendedKeyUsageOID.SERVER_AUTH
    assert server in node.extensions.get_extension_for_class(usage).value
    assert server not in alice.extensions.get_extension_for_class(usage).value


def test_the_files_of_a_user_are_read_by_the_clients_that_they_are_for(cluster: LocalCluster) -> None:
    directory = secure.client_dir(Path(cluster.data_dir), "bob")
    for name, protocol in (("client.properties", "SASL_SSL"), ("client-mtls.properties", "SSL")):
        items = parse_properties((directory / name).read_text())
        settings = settings_from({item.key: item.value for item in items})
        assert settings.security_protocol == protocol
        assert settings.tls is not None
        assert isinstance(tls_context(settings.tls), ssl.SSLContext)
    scram = dict(line.split("=", 1) for line in (directory / "librdkafka.conf").read_text().splitlines())
    assert scram["bootstrap.servers"] == cluster.bootstrap_servers
    assert scram["sasl.password"] == json.loads((directory / "python.json").read_text())["sasl_plain_password"]
    assert json.loads((directory / "spark.json").read_text())["kafka.security.protocol"] == "SASL_SSL"
    _key, certificate, more = pkcs12.load_key_and_certificates((directory / "keystore.p12").read_bytes(), b"kraftlite")
    assert certificate is not None
    assert certificate.subject.rfc4514_string() == "CN=bob"
    assert len(more) == 1


def test_the_first_credentials_are_kept_until_the_nodes_are_formatted(cluster: LocalCluster) -> None:
    """KIP-900."""
    found = secure.first_credentials(cluster)
    assert [item.split('name="')[1].split('"')[0] for item in found] == list(FIRST_USERS)
    assert found == secure.first_credentials(cluster), "each node is formatted with the same ones"
    passwords = [
        json.loads((secure.client_dir(Path(cluster.data_dir), user) / "python.json").read_text())["sasl_plain_password"]
        for user in FIRST_USERS
    ]
    assert len(set(passwords)) == len(passwords)
    assert not any(password in item for password in passwords for item in found)


def test_the_state_of_an_open_cluster_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    made = plan(tmp_path, controllers=1, brokers=1, combined=True)
    raw = asdict(made)
    del raw["secure"]
    for node in raw["nodes"]:
        del node["tls"]
    (tmp_path / "cluster.json").write_text(json.dumps(raw))
    assert load(tmp_path) == made
    save(made)
    assert load(tmp_path) == made


def test_new_certificates_come_from_the_same_authority(cluster: LocalCluster) -> None:
    path = secure.secure_dir(Path(cluster.data_dir)) / "node-3.pem"
    before = secure.described(path)
    secure.issue_nodes(cluster, secure.authority_of(cluster))
    after = secure.described(path)
    assert before[0] == after[0] == "CN=node-3"
    assert before[2] != after[2]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "node-1", "a" * 65, "a b", ".hidden", "a\n"])
def test_a_name_that_cannot_be_a_directory_is_refused(name: str) -> None:
    with pytest.raises(LocalError, match="allowed are 1 to 64"):
        secure.check_user(name)


def _junk(path: Path) -> None:
    path.write_bytes(b"\xff\x00junk")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


DAMAGES = (_junk, _sparse, _pipe, _directory, _loop, Path.unlink)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda it: it.__name__.strip("_"))
@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("ca.key", secure.authority_of),
        ("ca.pem", lambda it: list(secure.exported_files(it, ["alice"], Path("/elsewhere")))),
        ("ca.crl", lambda it: secure.revoke(it, "alice")),
        ("node-2.pem", lambda it: secure.described(secure.secure_dir(Path(it.data_dir)) / "node-2.pem")),
        ("node-2.pem", lambda it: secure.is_revoked(it, secure.secure_dir(Path(it.data_dir)) / "node-2.pem")),
        ("clients/alice/user.pem", lambda it: secure.revoke(it, "alice")),
        ("clients/alice/python.json", lambda it: list(secure.exported_files(it, ["alice"], Path("/elsewhere")))),
        ("clients/admin/client.properties", secure.admin_security),
        ("clients/admin/client-mtls.properties", secure.certificate_security),
        ("clients/admin/librdkafka.conf", secure.records_security),
    ],
)
def test_a_damaged_file_is_named_in_one_line(
    cluster: LocalCluster, tmp_path: Path, name: str, use: Callable[[LocalCluster], Any], damage: Callable[[Path], None]
) -> None:
    own = tmp_path / "cluster"
    shutil.copytree(cluster.data_dir, own)
    copy = replace(cluster, data_dir=str(own))
    path = secure.secure_dir(own) / name
    damage(path)
    if damage is _junk and name == "ca.pem":
        return  # it is handed on as it is
    with pytest.raises(LocalError) as refused:
        use(copy)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("damage", DAMAGES[:-1], ids=lambda it: it.__name__.strip("_"))
def test_a_damaged_file_of_the_cluster_is_told_by_every_command(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """What looks for the local cluster said that there was none, and a pipe was waited for."""
    (tmp_path / "cluster.json").write_text("{}")
    damage(tmp_path / "cluster.json")
    found = CliRunner().invoke(cli, ["topic", "list"], env={"KRAFTLITE_DATA_DIR": str(tmp_path)})
    assert found.exit_code == 1 and str(tmp_path / "cluster.json") in found.output and "Traceback" not in found.output


def test_only_nodes_that_take_passwords_are_given_mechanisms(cluster: LocalCluster) -> None:
    """A controller warned at each start of a key that has no effect."""
    controller, *brokers = cluster.nodes
    assert "sasl.enabled.mechanisms" not in secure.node_security(cluster, controller)
    assert all("sasl.enabled.mechanisms" in secure.node_security(cluster, it) for it in brokers)
