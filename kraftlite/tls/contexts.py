"""TLS contexts made of settings and of the stores that they name. Source: SE-02, SE-03, SE-05."""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509

from kraftlite.security.distinguished_names import rfc2253
from kraftlite.tls.ciphers import TLS_1_3_SUITES, openssl_name
from kraftlite.tls.errors import TlsError
from kraftlite.tls.revocation import Name, Revoked, read_revoked, require_lists
from kraftlite.tls.settings import ClientAuth, TlsSettings
from kraftlite.tls.stores import Keys, encrypted, read_keys, read_trusted

HTTP2: Final = "h2"
"""gRPC's name in the handshake (ALPN), which its clients demand."""
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Contexts made of one reading of the stores. `server` None: there is no key, so that nobody can be served."""

    settings: TlsSettings
    server: ssl.SSLContext | None
    client: ssl.SSLContext
    leaf: x509.Certificate | None
    seen: tuple[tuple[int, int, int] | None, ...]
    """Identity, size and time of change of the files, as they were before they were read."""
    revoked: frozenset[Name] = frozenset()


def load(settings: TlsSettings, *, alpn: tuple[str, ...] = ()) -> Loaded:
    """Read the stores. Raises TlsError. It reads files and is to be called off a busy loop."""
    seen = look(settings)
    try:
        keys, trusted = read_keys(settings.keys), read_trusted(settings.trust)
        revoked = read_revoked(settings.revoked)
        server = None if keys is None else _context(ssl.PROTOCOL_TLS_SERVER, settings, keys, trusted, alpn)
        client = _context(ssl.PROTOCOL_TLS_CLIENT, settings, keys, trusted, alpn)
        if revoked is not None:
            _refuse(revoked, *((client,) if server is None else (client, server)))
        if keys is not None:
            rfc2253(keys.leaf.subject.public_bytes())
    except TlsError:
        raise
    except (OSError, ValueError) as error:  # what OpenSSL or the library find odd; ssl.SSLError is an OSError
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise TlsError(f"{settings.keys.prefix}ssl.keystore and ssl.truststore cannot be used: {reason}") from None
    names = frozenset() if revoked is None else revoked.names
    return Loaded(settings, server, client, None if keys is None else keys.leaf, seen, names)


def _refuse(revoked: Revoked, *contexts: ssl.SSLContext) -> None:
    with _file(revoked.pem.encode()) as path:
        for context in contexts:
            require_lists(context, path)


def look(settings: TlsSettings) -> tuple[tuple[int, int, int] | None, ...]:
    """Return what tells a replaced file from the one that was read. None: it is not there."""
    found: list[tuple[int, int, int] | None] = []
    for name in settings.files:
        try:
            status = Path(name).stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def check_successor(old: Loaded, new: Loaded) -> None:
    """Raises TlsError when a new certificate speaks for another name than the one that it follows, and that is not allowed."""
    if old.leaf is None or new.leaf is None:
        if old.leaf is not None:
            raise TlsError(f"{new.settings.keys.prefix}ssl.keystore.location: a listener that has a key store cannot lose it")
        return
    prefix = new.settings.keys.prefix
    if not new.settings.allow_dn_changes and old.leaf.subject != new.leaf.subject:
        raise TlsError(
            f"{prefix}ssl.keystore: the new certificate has another distinguished name, {new.leaf.subject.rfc4514_string()} "
            f"instead of {old.leaf.subject.rfc4514_string()}; allowed with {prefix}ssl.allow.dn.changes=true"
        )
    gone = _alternative_names(old.leaf) - _alternative_names(new.leaf)
    if not new.settings.allow_san_changes and gone:
        raise TlsError(
            f"{prefix}ssl.keystore: the new certificate lacks the subject alternative names {', '.join(sorted(gone))}; "
            f"allowed with {prefix}ssl.allow.san.changes=true"
        )


def _alternative_names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {f"{type(name).__name__}:{name.value}" for name in found.value}


def suite_allowed(settings: TlsSettings, name: str) -> bool:
    """Return whether a connection may use this suite: which ones of TLS 1.3 are offered, Python cannot be told."""
    return not settings.suites or name not in TLS_1_3_SUITES or name in settings.suites


def _context(kind: int, settings: TlsSettings, keys: Keys | None, trusted: str | None, alpn: tuple[str, ...]) -> ssl.SSLContext:
    server = kind == ssl.PROTOCOL_TLS_SERVER
    context = ssl.SSLContext(kind)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    if server:
        # No session is resumed: whoever connects proves who it is, also after the trust store has changed.
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 0
        context.verify_mode = _VERIFY[settings.client_auth]
    else:
        context.check_hostname = settings.check_host
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, any certificate of a trust store may be trusted
    versions = set(settings.versions)
    if settings.suites:
        old = [name for name in map(openssl_name, settings.suites) if name is not None]
        if old:
            context.set_ciphers(":".join(old))
        else:
            versions.discard("TLSv1.2")
        if not any(suite in TLS_1_3_SUITES for suite in settings.suites):
            versions.discard("TLSv1.3")
    if not versions:
        raise TlsError("ssl.cipher.suites has no suite for any version of ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = _VERSIONS[min(versions)], _VERSIONS[max(versions)]
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if trusted is not None:
        context.load_verify_locations(cadata=trusted)
    else:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH)
    if keys is not None:
        _load_chain(context, keys, settings)
    return context


def _load_chain(context: ssl.SSLContext, keys: Keys, settings: TlsSettings) -> None:
    password = secrets.token_hex(32)
    with _file(encrypted(keys, password.encode())) as path:
        try:
            context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).replace("_", " ").lower()
            raise TlsError(f"{settings.keys.prefix}ssl.keystore: key and certificate cannot be used: {reason}") from None


@contextmanager
def _file(data: bytes) -> Iterator[str]:
    """A file with these bytes: the library reads keys from files only. In memory where the system has such files; the key in it
    is encrypted all the same."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("kraftlite-keys", os.MFD_CLOEXEC)
        try:
            os.write(number, data)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.TemporaryDirectory(prefix="kraftlite-") as folder:  # 0700
        path = Path(folder) / "keys.pem"
        path.write_bytes(data)
        yield str(path)
