"""Certificates that their authority has taken back: lists in PEM, in a file of `kraftlite.ssl.crl.location` (SE-07).

OpenSSL refuses who shows such a certificate, and who shows one of an authority without a list, or whose list has expired: then
nobody knows. Kafka has no key for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography import x509

from kraftlite.tls.errors import TlsError
from kraftlite.tls.pem import blocks
from kraftlite.tls.stores import read_file

if TYPE_CHECKING:
    from ssl import SSLContext

KEY: Final = "kraftlite.ssl.crl.location"
_LABEL: Final = "X509 CRL"


class Name(NamedTuple):
    """The name of one certificate for good: that of its issuer (DER), and its number."""

    issuer: bytes
    serial: int

    @classmethod
    def of(cls, certificate: x509.Certificate) -> Name:
        return cls(certificate.issuer.public_bytes(), certificate.serial_number)


class Revoked(NamedTuple):
    """The lists as PEM, and what is in them."""

    pem: str
    names: frozenset[Name]


def read_revoked(location: str | None) -> Revoked | None:
    """None: no lists are configured. Raises TlsError."""
    if location is None:
        return None
    where = f"{KEY}={location}"
    found = blocks(read_file(location, where).decode("utf-8", "replace"), _LABEL)
    if not found:
        raise TlsError(f"{where} has no list of revoked certificates in PEM (BEGIN {_LABEL})")
    names: set[Name] = set()
    for number, item in enumerate(found, 1):
        try:
            of_list = x509.load_pem_x509_crl(item.encode())
            names.update(Name(of_list.issuer.public_bytes(), it.serial_number) for it in of_list)
        except ValueError as error:
            reason = (str(error).splitlines() or ["?"])[0][:100]
            raise TlsError(f"{where}: list {number} cannot be read: {reason}") from None
    return Revoked("".join(found), frozenset(names))


def make_list(authority: x509.Certificate, key: object, entries: Iterable[x509.RevokedCertificate]) -> bytes:
    """A list of these certificates in PEM, signed. It holds as long as the authority's certificate."""
    from cryptography.hazmat.primitives import hashes, serialization

    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
    builder = builder.last_update(authority.not_valid_before_utc).next_update(authority.not_valid_after_utc)
    for entry in entries:
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]


def entry_for(certificate: x509.Certificate) -> x509.RevokedCertificate:
    """The certificate's entry in a list, as of now."""
    builder = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number)
    return builder.revocation_date(datetime.now(UTC)).build()


def require_lists(context: SSLContext, path: str) -> None:
    """Refuse with this context whom the lists in this file name, and who is of an authority without one."""
    import ssl

    context.load_verify_locations(cafile=path)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
