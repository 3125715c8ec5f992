"""Key and trust stores: PEM, in a setting or in a file, and PKCS12. JKS is refused with the command that converts it.

Source: KIP-651, KAFKA-12703; SE-02.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12

from kraftlite.model.limits import MIB
from kraftlite.tls.errors import TlsError
from kraftlite.tls.pem import blocks

MAX_STORE_BYTES: Final = 4 * MIB
_JKS: Final = b"\xfe\xed\xfe\xed"
_JCEKS: Final = b"\xce\xce\xce\xce"
STORE_KINDS: Final = ("PEM", "PKCS12", "JKS")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStoreSettings:
    """`prefix`: what stands before `ssl.` in the names of these settings. `chain` and `key` are texts, `location` is a file."""

    prefix: str = ""
    kind: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    chain: str | None = None
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStoreSettings:
    prefix: str = ""
    kind: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = None


@dataclass(frozen=True, slots=True)
class Keys:
    """A private key that is not encrypted, and the certificates that speak for it, its own first, as PEM."""

    key: str = field(repr=False)
    chain: str
    leaf: x509.Certificate


def read_keys(settings: KeyStoreSettings) -> Keys | None:
    """None: there is no key store. Raises TlsError."""
    _check_keys(settings)
    name = f"{settings.prefix}ssl.keystore"
    if settings.key is not None and settings.chain is not None:
        return _pem_keys(settings.chain, settings.key, settings, f"{name}.certificate.chain", f"{name}.key")
    if settings.location is None:
        return None
    where = f"{name}.location={settings.location}"
    data = read_file(settings.location, where)
    if settings.kind == "PEM":
        text = _text(data, where)
        return _pem_keys(text, text, settings, where, where)
    found = _pkcs12(data, settings.password, settings.location, "keystore", where, f"{name}.password")
    if found.key is None or found.cert is None:
        raise TlsError(f"{where} has no private key with a certificate")
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    rest = _ordered(found.cert.certificate, [it.certificate for it in found.additional_certs])
    return Keys(key, "".join(_pem(it) for it in rest), found.cert.certificate)


def read_trusted(settings: TrustStoreSettings) -> str | None:
    """The trusted certificates as PEM; None: there is no trust store. Raises TlsError."""
    name = f"{settings.prefix}ssl.truststore"
    if settings.certificates is not None:
        if settings.kind != "PEM":
            raise TlsError(f"{name}.certificates is for {name}.type=PEM, and that is {settings.kind}")
        if settings.location is not None:
            raise TlsError(f"{name}.certificates and {name}.location exclude each other")
    if settings.kind == "PEM" and settings.password is not None:
        raise TlsError(f"{name}.password is given, and {name}.type=PEM: certificates in PEM have no password")
    if settings.certificates is not None:
        return _pem_certificates(settings.certificates, f"{name}.certificates")
    if settings.location is None:
        return None
    where = f"{name}.location={settings.location}"
    data = read_file(settings.location, where)
    if settings.kind == "PEM":
        return _pem_certificates(_text(data, where), where)
    found = _pkcs12(data, settings.password, settings.location, "truststore", where, f"{name}.password")
    certificates = [it.certificate for it in (*([] if found.cert is None else [found.cert]), *found.additional_certs)]
    if not certificates:
        raise TlsError(f"{where} has no certificates")
    return "".join(_pem(it) for it in certificates)


def encrypted(keys: Keys, password: bytes) -> bytes:
    """The key and its chain as one PEM text, the key encrypted."""
    key = load_pem_private_key(keys.key.encode(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)) + keys.chain.encode()


def _check_keys(settings: KeyStoreSettings) -> None:
    name, kind = f"{settings.prefix}ssl.keystore", settings.kind
    for given, key in ((settings.key, "key"), (settings.chain, "certificate.chain")):
        if given is not None and kind != "PEM":
            raise TlsError(f"{name}.{key} is for {name}.type=PEM, and that is {kind}")
    if settings.key is not None and settings.chain is None:
        raise TlsError(f"{name}.key is given without {name}.certificate.chain")
    if settings.chain is not None and settings.key is None:
        raise TlsError(f"{name}.certificate.chain is given without {name}.key")
    if settings.key is not None and settings.location is not None:
        raise TlsError(f"{name}.key and {name}.location exclude each other")
    if kind == "PEM" and settings.password is not None:
        raise TlsError(
            f"{name}.password is given, and {name}.type=PEM: the password of a private key is {settings.prefix}ssl.key.password"
        )


def _pem_keys(chain: str, key: str, settings: KeyStoreSettings, where: str, where_key: str) -> Keys:
    certificates, keys = blocks(chain, "CERTIFICATE"), blocks(key, "PRIVATE KEY")
    if not certificates:
        raise TlsError(f"{where} has no certificate in PEM")
    if len(keys) != 1:
        raise TlsError(f"{where_key} has {len(keys)} private keys in PEM; allowed is one")
    password, name = settings.key_password, f"{settings.prefix}ssl.key.password"
    is_encrypted = "ENCRYPTED" in keys[0].partition("\n\n")[0]
    if is_encrypted and not password:
        raise TlsError(f"the private key in {where_key} is encrypted, and {name} is not set")
    try:
        private = load_pem_private_key(keys[0].encode(), password.encode() if is_encrypted and password else None)
        leaf = x509.load_pem_x509_certificate(certificates[0].encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = f"{name} is wrong, or the key is damaged" if is_encrypted else _reason(error)
        raise TlsError(f"{where_key}: the private key cannot be read: {reason}") from None
    plain = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Keys(plain, "".join(certificates), leaf)


def _pem_certificates(text: str, where: str) -> str:
    found = blocks(text, "CERTIFICATE")
    if not found:
        raise TlsError(f"{where} has no certificate in PEM")
    for number, item in enumerate(found, 1):
        try:
            x509.load_pem_x509_certificate(item.encode())
        except ValueError as error:
            raise TlsError(f"{where}: certificate {number} cannot be read: {_reason(error)}") from None
    return "".join(found)


def _pkcs12(
    data: bytes, password: str | None, location: str, store: str, where: str, password_key: str
) -> PKCS12KeyAndCertificates:
    if data[:4] in (_JKS, _JCEKS):
        kind = "JKS" if data[:4] == _JKS else "JCEKS"
        target = str(Path(location).with_suffix(".p12"))
        raise TlsError(
            f"{where} is a {kind} store, which cannot be read here; convert it with: keytool -importkeystore "
            f"-srckeystore {location} -srcstoretype {kind} -destkeystore {target} -deststoretype PKCS12 "
            f"(then {password_key.removesuffix('password')}location={target} and type=PKCS12)"
        )
    if b"-----BEGIN " in data[:MIB]:
        raise TlsError(f"{where} is a PEM file; set {password_key.removesuffix('password')}type=PEM for it")
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        missing = f"{password_key} is not set" if password is None else f"{password_key} is wrong"
        raise TlsError(f"{where} cannot be read as PKCS12: {missing}, or the file is no {store} or damaged") from None


def _ordered(leaf: x509.Certificate, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """From the leaf towards its root; what does not belong to the chain is left out."""
    found = [leaf]
    while found[-1].issuer != found[-1].subject:
        issuer = next((it for it in others if it.subject == found[-1].issuer and it not in found), None)
        if issuer is None:
            break
        found.append(issuer)
    return found


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def read_file(location: str, where: str) -> bytes:
    """The bytes of a store. `where`: its key and value, for errors. Raises TlsError for none, and one that is too large."""
    path = Path(location)
    try:
        if not path.is_file():
            raise TlsError(f"{where}: {'it is no regular file' if path.exists() else 'there is no such file'}")
        with path.open("rb") as file:
            data = file.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        raise TlsError(f"{where} cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_STORE_BYTES:
        raise TlsError(f"{where} is larger than {MAX_STORE_BYTES} bytes")
    return data


def _text(data: bytes, where: str) -> str:
    if data[:4] in (_JKS, _JCEKS) or data[:1] == b"\x30":
        raise TlsError(f"{where} is no PEM file, but a store of another type")
    return data.decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    """The first line of what the library says, in at most 100 characters."""
    return (str(error).splitlines() or [type(error).__name__])[0][:100]
