"""A local cluster that is closed: certificates, first users, its nodes' configurations, and ready files for clients.

All of it lies in `<data-dir>/secure`, which its owner alone may read:

    ca.pem, ca.key          the cluster's own certificate authority
    ca.crl                  the certificates that it has taken back
    node-<id>.pem           certificate and key of a node
    clients/<user>/         what a client of that user needs, once per kind of client (see `client_files`)

Clients come with SCRAM-SHA-512 over TLS to the listener SASL_SSL, or with their certificate to the listener SSL. Nodes show each
other their certificates. `admin` and the nodes are super users; everybody else may do what ACLs allow.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftlite.config.properties import format_properties, parse_properties
from kraftlite.host.files import read_bounded
from kraftlite.local.private import write_private
from kraftlite.local.state import LocalCluster, LocalError, LocalNode, locked
from kraftlite.model.limits import MIB
from kraftlite.security.first_users import ADMIN, FIRST_USERS, MECHANISM, add_scram_argument, new_password

if TYPE_CHECKING:  # cryptography takes longer to load than most commands
    from cryptography import x509

    from kraftlite.tls.authority import Authority
    from kraftlite.tls.source import TlsSource

SASL_LISTENER: Final = "SASL_SSL"
TLS_LISTENER: Final = "SSL"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_FIRST_CREDENTIALS: Final = "first-credentials"
_PYTHON: Final = "python.json"
_MTLS: Final = "client-mtls.properties"
_LIBRDKAFKA: Final = "librdkafka.conf"
_STORE_PASSWORD: Final = "kraftlite"
"""Java wants a password for each store. These lie beside their passwords, so a secret one would protect nothing."""


def secure_dir(data_dir: Path) -> Path:
    return data_dir / "secure"


def client_dir(data_dir: Path, user: str) -> Path:
    return secure_dir(data_dir) / "clients" / user


def command_config(data_dir: Path, user: str = ADMIN) -> Path:
    """The file for `--command-config` of our commands and Kafka's tools."""
    return client_dir(data_dir, user) / "client.properties"


def check_user(name: str) -> str:
    """Return the name. Raises LocalError for one that cannot be a part of a path."""
    if _USER.fullmatch(name) is None or name.startswith("node-"):
        raise LocalError(
            f"user {name[:80]!r}: allowed are 1 to 64 letters, digits and . _ @ -, with a letter or digit first; "
            "names that begin with node- are those of nodes"
        )
    return name


def create(cluster: LocalCluster) -> None:
    """Make certificates, users and client files of a new cluster."""
    from kraftlite.tls.authority import Authority

    data_dir = Path(cluster.data_dir)
    authority = Authority.create(f"kraftlite {cluster.cluster_id}")
    write_private(secure_dir(data_dir) / "ca.key", authority.pem())
    write_private(secure_dir(data_dir) / "ca.pem", authority.certificate_pem())
    write_private(_revoked_file(data_dir), authority.revoke(None))
    issue_nodes(cluster, authority)
    found = []
    for user in FIRST_USERS:
        password = new_password()
        write_client_files(cluster, user, password)
        found.append(add_scram_argument(user, password))
    write_private(secure_dir(data_dir) / _FIRST_CREDENTIALS, "\n".join(found).encode())


def first_credentials(cluster: LocalCluster) -> list[str]:
    """The first users' credentials, as `format --add-scram` takes them: salted, and the same ones for each node. They are kept
    until the nodes are formatted (`formatted`)."""
    path = secure_dir(Path(cluster.data_dir)) / _FIRST_CREDENTIALS
    return _text(path).splitlines() if cluster.secure and path.exists() else []


def formatted(cluster: LocalCluster) -> None:
    """The metadata log has the credentials now."""
    (secure_dir(Path(cluster.data_dir)) / _FIRST_CREDENTIALS).unlink(missing_ok=True)


def authority_of(cluster: LocalCluster) -> Authority:
    """Raises LocalError when its file is gone or damaged."""
    from kraftlite.tls.authority import Authority

    path = secure_dir(Path(cluster.data_dir)) / "ca.key"
    try:
        return Authority.read(_read(path))
    except ValueError as error:
        raise LocalError(f"{path} cannot be used: {error}") from None


def issue_nodes(cluster: LocalCluster, authority: Authority) -> None:
    """New certificates for all nodes."""
    for node in cluster.nodes:
        issue_node(cluster, node, authority)


def issue_node(cluster: LocalCluster, node: LocalNode, authority: Authority) -> None:
    own = (address.rpartition(":")[0] for address in node.addresses)
    issued = authority.issue(f"node-{node.id}", tuple(dict.fromkeys((*_HOSTS, *own))))
    write_private(_certificate(cluster, node), issued.pem())


def forget_node(cluster: LocalCluster, node: LocalNode) -> None:
    """Remove the certificate of a node that has left."""
    _certificate(cluster, node).unlink(missing_ok=True)


def _certificate(cluster: LocalCluster, node: LocalNode) -> Path:
    return secure_dir(Path(cluster.data_dir)) / f"node-{node.id}.pem"


def _revoked_file(data_dir: Path) -> Path:
    return secure_dir(data_dir) / "ca.crl"


def revoke(cluster: LocalCluster, owner: str) -> str:
    """Take back the certificate of a user, of a node (`node-1`), or in a file. Return its subject. Nodes refuse it as soon as
    they look at their files again. Raises LocalError."""
    data_dir = Path(cluster.data_dir)
    known, ca = _revoked_file(data_dir), secure_dir(data_dir) / "ca.pem"
    owners = {
        name.removeprefix("user ").replace("node ", "node-"): path for name, path in certificate_files(cluster) if path != ca
    }
    path = owners.get(owner) or Path(owner)
    if owner not in owners and not path.is_file():
        raise LocalError(f"{owner!r} has no certificate here: allowed are {', '.join(owners)}, and files with one")
    certificate = _certificate_in(path)
    if certificate == _certificate_in(ca):
        raise LocalError(f"{path}: the authority's certificate cannot be revoked, because every other one hangs on it")
    with locked(data_dir / ".cluster.lock"):
        authority = authority_of(cluster)
        try:
            revoked = authority.revoke(_read(known), certificate)
        except ValueError as error:
            raise LocalError(f"{known} is no list of revoked certificates in PEM: {error}") from None
        try:
            write_private(known, revoked)
        except OSError as error:
            raise LocalError(f"{known} cannot be written: {error.strerror or error}") from None
    return certificate.subject.rfc4514_string()


def is_revoked(cluster: LocalCluster, path: Path) -> bool:
    """Return whether the certificate in a file was taken back. Raises LocalError."""
    from kraftlite.tls.errors import TlsError
    from kraftlite.tls.revocation import Name, read_revoked

    try:
        lists = read_revoked(str(_revoked_file(Path(cluster.data_dir))))
    except TlsError as error:
        raise LocalError(str(error)) from None
    return lists is not None and Name.of(_certificate_in(path)) in lists.names


def _certificate_in(path: Path) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise LocalError(f"{path} has no certificate in PEM: {error}") from None


def node_security(cluster: LocalCluster, node: LocalNode, sasl_listeners: Iterable[str] = (SASL_LISTENER,)) -> dict[str, str]:
    """The keys of a node's configuration that close it. `sasl_listeners`: those at which clients give a password."""
    directory = secure_dir(Path(cluster.data_dir))
    supers = ";".join(f"User:{name}" for name in (ADMIN, *(f"node-{other.id}" for other in cluster.nodes)))
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(_certificate(cluster, node)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "kraftlite.ssl.crl.location": str(_revoked_file(Path(cluster.data_dir))),
        "ssl.client.auth": "required",
        **{f"listener.name.{name.lower()}.ssl.client.auth": "none" for name in sasl_listeners},
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
        **({"sasl.enabled.mechanisms": f"{MECHANISM},SCRAM-SHA-256"} if "broker" in node.roles else {}),
        "authorizer.class.name": AUTHORIZER,
        "super.users": supers,
    }


# --- files of clients


def write_client_files(cluster: LocalCluster, user: str, password: str) -> None:
    """Write, or write anew, everything that a client of this user needs."""
    data_dir = Path(cluster.data_dir)
    authority = authority_of(cluster)
    directory = client_dir(data_dir, user)
    issued = authority.issue(user)
    write_private(directory / "user.pem", issued.pem())
    write_private(directory / "keystore.p12", issued.pkcs12(user, authority.certificate, _STORE_PASSWORD))
    write_private(directory / "truststore.p12", authority.truststore_pkcs12(_STORE_PASSWORD))
    for name, text in client_files(cluster, user, password).items():
        write_private(directory / name, text.encode())


def rewrite_client_files(cluster: LocalCluster) -> None:
    """Write the addresses of the cluster's brokers into every user's files, which keep their passwords and certificates. Raises
    LocalError for a file that cannot be read."""
    for user in known_users(Path(cluster.data_dir)):
        for name, text in client_files(cluster, user, _password(cluster, user)).items():
            write_private(client_dir(Path(cluster.data_dir), user) / name, text.encode())


def _password(cluster: LocalCluster, user: str) -> str:
    path = client_dir(Path(cluster.data_dir), user) / _PYTHON
    try:
        return str(json.loads(_text(path))["sasl_plain_password"])
    except KeyError:
        raise LocalError(f"{path} has no sasl_plain_password") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise LocalError(f"{path} cannot be read: {error}") from None


def exported_files(cluster: LocalCluster, users: Iterable[str], into: Path) -> Iterable[tuple[str, bytes]]:
    """The files of these users' clients, and of the authority that they trust, for another place: each with its path below
    `into`, the directory from which the paths in them hold. No key of the authority or of a node is among them. Raises
    LocalError."""
    data_dir, moved = Path(cluster.data_dir), replace(cluster, data_dir=str(into))
    ca = secure_dir(data_dir) / "ca.pem"
    yield str(ca.relative_to(data_dir)), _read(ca)
    for user in users:
        if user not in known_users(data_dir):
            raise LocalError(f"user {user!r} has no client files in {data_dir}: allowed are {', '.join(known_users(data_dir))}")
        directory = client_dir(data_dir, user)
        texts = client_files(moved, user, _password(cluster, user))
        for path in sorted(directory.iterdir()):
            data = texts[path.name].encode() if path.name in texts else _read(path)
            yield str(path.relative_to(data_dir)), data


def client_files(cluster: LocalCluster, user: str, password: str) -> dict[str, str]:
    """The text of each file by its name."""
    data_dir = Path(cluster.data_dir)
    directory, ca = client_dir(data_dir, user), str(secure_dir(data_dir) / "ca.pem")
    scram_servers, tls_servers = cluster.bootstrap_servers, cluster.tls_bootstrap_servers
    jaas = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{password}";'
    scram = {"security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM, "sasl.jaas.config": jaas}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    stores = {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(directory / "truststore.p12"),
        "ssl.truststore.password": _STORE_PASSWORD,
    }
    keys = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(directory / "keystore.p12"),
        "ssl.keystore.password": _STORE_PASSWORD,
        "ssl.key.password": _STORE_PASSWORD,
    }
    mtls = {"security.protocol": "SSL", **trust, "ssl.keystore.type": "PEM", "ssl.keystore.location": str(directory / "user.pem")}
    rdkafka = {
        "bootstrap.servers": scram_servers,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": ca,
    }
    rdkafka_mtls = {
        "bootstrap.servers": tls_servers,
        "security.protocol": "ssl",
        "ssl.ca.location": ca,
        "ssl.certificate.location": str(directory / "user.pem"),
        "ssl.key.location": str(directory / "user.pem"),
    }
    python = {
        "bootstrap_servers": scram_servers.split(","),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        "ssl_cafile": ca,
    }
    return {
        "client.properties": _java(user, {"bootstrap.servers": scram_servers, **scram, **trust}),
        "client-pkcs12.properties": _java(user, {"bootstrap.servers": scram_servers, **scram, **stores}),
        _MTLS: _java(user, {"bootstrap.servers": tls_servers, **mtls}),
        "client-mtls-pkcs12.properties": _java(
            user, {"bootstrap.servers": tls_servers, "security.protocol": "SSL", **stores, **keys}
        ),
        _LIBRDKAFKA: _lines(rdkafka),
        "librdkafka-mtls.conf": _lines(rdkafka_mtls),
        _PYTHON: json.dumps(python, indent=2) + "\n",
        "spark.json": json.dumps(
            {"kafka.bootstrap.servers": scram_servers, **{f"kafka.{name}": value for name, value in {**scram, **trust}.items()}},
            indent=2,
        )
        + "\n",
    }


def _java(user: str, values: dict[str, str]) -> str:
    header = f"# A client of the user {user}: for Java clients, Kafka's tools and kraftlite --command-config\n"
    return header + format_properties(values)


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


def known_users(data_dir: Path) -> list[str]:
    """The users that have client files here."""
    try:
        return sorted(path.name for path in (secure_dir(data_dir) / "clients").iterdir() if path.is_dir())
    except FileNotFoundError:
        return []


def certificate_files(cluster: LocalCluster) -> Iterable[tuple[str, Path]]:
    """Everything with a certificate: whose it is, and its file."""
    directory = secure_dir(Path(cluster.data_dir))
    yield "authority", directory / "ca.pem"
    for node in cluster.nodes:
        yield f"node {node.id}", _certificate(cluster, node)
    for user in known_users(Path(cluster.data_dir)):
        yield f"user {user}", client_dir(Path(cluster.data_dir), user) / "user.pem"


def forget_user(cluster: LocalCluster, user: str) -> None:
    """Remove a user's client files."""
    if user in known_users(Path(cluster.data_dir)):
        shutil.rmtree(client_dir(Path(cluster.data_dir), user))


def described(path: Path) -> tuple[str, str, str]:
    """The subject of a certificate, the time until which it holds (UTC), and its SHA-256 fingerprint."""
    from kraftlite.tls.authority import describe

    try:
        return describe(_read(path))
    except ValueError as error:
        raise LocalError(f"{path} has no certificate in PEM: {error}") from None


def admin_security(cluster: LocalCluster) -> dict[str, str]:
    """The TLS and SASL properties of the administrator's client; empty for a cluster that is open."""
    if not cluster.secure:
        return {}
    found = _properties(command_config(Path(cluster.data_dir)))
    return {name: value for name, value in found.items() if name != "bootstrap.servers"}


def certificate_security(cluster: LocalCluster, user: str = ADMIN) -> dict[str, str]:
    """The TLS properties of a client that shows its certificate, as controllers demand; empty for a cluster that is open."""
    if not cluster.secure:
        return {}
    found = _properties(client_dir(Path(cluster.data_dir), user) / _MTLS)
    return {name: value for name, value in found.items() if name != "bootstrap.servers"}


def records_security(cluster: LocalCluster) -> dict[str, str]:
    """The settings of librdkafka of the administrator's client; empty for a cluster that is open."""
    if not cluster.secure:
        return {}
    found = _properties(client_dir(Path(cluster.data_dir), ADMIN) / _LIBRDKAFKA)
    return {name: value for name, value in found.items() if name != "bootstrap.servers"}


def _properties(path: Path) -> dict[str, str]:
    try:
        return {item.key: item.value for item in parse_properties(_text(path))}
    except ValueError as error:
        raise LocalError(f"{path}: {error}") from None


def _text(path: Path) -> str:
    """Raises LocalError."""
    try:
        return _read(path).decode()
    except UnicodeDecodeError as error:
        raise LocalError(f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}") from None


def _read(path: Path) -> bytes:
    """A small file of the cluster. Raises LocalError."""
    try:
        return read_bounded(path, MIB)
    except OSError as error:
        raise LocalError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise LocalError(str(error)) from None


def peer_tls(cluster: LocalCluster, user: str = ADMIN) -> TlsSource | None:
    """The certificate of a user, with which a program asks nodes what only nodes are told; they answer super users. None where
    nodes speak in plain text. Raises LocalError."""
    if not cluster.secure:
        return None
    return certificate_in(client_dir(Path(cluster.data_dir), user) / _MTLS)


def certificate_in(path: Path) -> TlsSource:
    """The certificate that the properties of a client name, for calls to nodes. Raises LocalError."""
    from kraftlite.tls.contexts import HTTP2
    from kraftlite.tls.settings import read_settings
    from kraftlite.tls.source import TlsSource

    try:
        given = _properties(path)
        problems: list[str] = []
        settings = read_settings(given.get, lambda key: key, problems)
        if problems:
            raise LocalError(f"{path}: {'; '.join(problems)}")
        return TlsSource.of(settings, alpn=(HTTP2,))
    except (OSError, ValueError) as error:
        raise LocalError(f"{path} cannot be used: {error}") from None
