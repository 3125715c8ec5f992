"""A certificate authority of a cluster's own, and the certificates of its nodes and users: for clusters that are made closed."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kraftlite.tls.revocation import entry_for, make_list

AUTHORITY_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 825
"""The longest life of a server's certificate that every client accepts."""
_BACKDATED: Final = timedelta(hours=1)
"""Certificates hold from an hour ago, so that a clock that is a little behind does not refuse them."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self) -> bytes:
        """The key in PKCS#8, not encrypted."""
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

    def pem(self) -> bytes:
        """The certificate and its key (PKCS#8, not encrypted) in one text, as `ssl.keystore.location` takes it (KIP-651)."""
        return self.certificate_pem() + self.key_pem()

    def pkcs12(self, name: str, authority: x509.Certificate, password: str) -> bytes:
        """The same as a PKCS#12 store, with the authority's certificate."""
        protection = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(name.encode(), self.key, self.certificate, [authority], protection)


class Authority:
    """A certificate authority that signs for one cluster."""

    def __init__(self, issued: Issued) -> None:
        self._issued = issued

    @property
    def certificate(self) -> x509.Certificate:
        return self._issued.certificate

    def certificate_pem(self) -> bytes:
        """The certificate that clients and nodes trust."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def pem(self) -> bytes:
        """The certificate and the key, from which `read` makes the same authority again."""
        return self._issued.pem()

    @classmethod
    def create(cls, common_name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(Issued(certificate, key))

    @classmethod
    def read(cls, data: bytes) -> Authority:
        """Raises ValueError when the text has no key or no certificate of this kind."""
        key = serialization.load_pem_private_key(data, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key is of another kind than a cluster makes")
        return cls(Issued(x509.load_pem_x509_certificate(data), key))

    def issue(self, common_name: str, hosts: tuple[str, ...] = ()) -> Issued:
        """A certificate for both sides of a connection. `hosts`: names and addresses at which its owner is reached."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        issuer = self._issued.key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        return Issued(builder.sign(self._issued.key, hashes.SHA256()), key)

    def revoke(self, known: bytes | None, *certificates: x509.Certificate) -> bytes:
        """The list of what is revoked in PEM: what is in the list that is `known`, and these. Raises ValueError for a list that
        cannot be read, and for a certificate of another authority."""
        entries = {it.serial_number: it for it in (() if known is None else x509.load_pem_x509_crl(known))}
        for certificate in certificates:
            try:
                certificate.verify_directly_issued_by(self.certificate)
            except (InvalidSignature, TypeError, ValueError):
                subject, own = (it.subject.rfc4514_string() for it in (certificate, self.certificate))
                raise ValueError(f"the certificate of {subject} is not one of the authority {own}") from None
            entries.setdefault(certificate.serial_number, entry_for(certificate))
        return make_list(self.certificate, self._issued.key, entries.values())

    def truststore_pkcs12(self, password: str) -> bytes:
        """The authority's certificate as a PKCS#12 store that Java takes for a truststore."""
        protection = serialization.BestAvailableEncryption(password.encode())
        entry = pkcs12.PKCS12Certificate(self.certificate, b"ca")
        return pkcs12.serialize_java_truststore([entry], protection)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def describe(pem: bytes) -> tuple[str, str, str]:
    """The subject of the first certificate, the time until which it holds (UTC), and its SHA-256 fingerprint."""
    certificate = x509.load_pem_x509_certificate(pem)
    until = certificate.not_valid_after_utc.strftime("%Y-%m-%d %H:%M")
    return certificate.subject.rfc4514_string(), until, certificate.fingerprint(hashes.SHA256()).hex(":")
