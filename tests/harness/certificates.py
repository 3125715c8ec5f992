"""Authorities and certificates for tests, made while they run."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from kraftlite.tls.revocation import entry_for, make_list

DAY = datetime.timedelta(days=1)
LOOPBACK = ("localhost", "127.0.0.1")


def named(common_name: str, *more: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    """A name whose last part is the common name, so that it is the first in print."""
    return x509.Name(
        [*(x509.NameAttribute(oid, value) for oid, value in more), x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    )


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key, and the authority that signed it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)).decode()

    def both(self, password: str | None = None) -> str:
        return self.key_pem(password) + self.pem

    def pkcs12(self, password: str, others: Sequence[x509.Certificate] = ()) -> bytes:
        return pkcs12.serialize_key_and_certificates(b"node", self.key, self.certificate, others, _encryption(password))


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())


class Authority:
    """A certificate authority that signs whatever is asked for."""

    def __init__(self, name: str = "test authority") -> None:
        self._name = named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())

    @cached_property
    def certificate(self) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        return (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def trust_pkcs12(self, password: str) -> bytes:
        """A trust store as keytool makes it."""
        marked = pkcs12.PKCS12Certificate(self.certificate, b"ca")
        return pkcs12.serialize_java_truststore([marked], _encryption(password))

    def revoking(self, *revoked: Certificate) -> str:
        """Its list of revoked certificates."""
        return make_list(self.certificate, self._key, [entry_for(it.certificate) for it in revoked]).decode()

    def issue(self, name: str | x509.Name, hosts: Sequence[str] = LOOPBACK, *, expired: bool = False) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name) if isinstance(name, str) else name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * DAY)
            .not_valid_after(now - DAY if expired else now + DAY)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(it) for it in hosts]), critical=False)
        return Certificate(key, builder.sign(self._key, hashes.SHA256()))


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


@dataclass(frozen=True)
class Stores:
    """PEM files of one party in a folder: its key with its certificate, and whom it trusts."""

    folder: Path

    @property
    def keys(self) -> Path:
        return self.folder / "keys.pem"

    @property
    def trust(self) -> Path:
        return self.folder / "trust.pem"

    def write(self, certificate: Certificate, *trusted: Authority) -> Stores:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.replace(self.keys, certificate.both())
        self.replace(self.trust, "".join(it.pem for it in trusted))
        return self

    @staticmethod
    def replace(path: Path, text: str) -> None:
        """The whole file at once, as tools that renew certificates do it."""
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)

    def as_kafka(self, prefix: str = "") -> dict[str, str]:
        """The settings of a node, or of a Java client."""
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(self.keys),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(self.trust),
        }

    def as_librdkafka(self, *, client_certificate: bool = True) -> dict[str, str]:
        own = {"ssl.certificate.location": str(self.keys), "ssl.key.location": str(self.keys)}
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.trust), **(own if client_certificate else {})}
