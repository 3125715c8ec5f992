"""The certificates of one listener, which may be replaced while it runs, and the principals of its peers.

Source: SE-04, SE-05, SE-07.
"""

from __future__ import annotations

import ssl
from typing import Final
from weakref import WeakKeyDictionary

from cryptography import x509

from kraftlite.model.principal import ANONYMOUS, USER, Principal
from kraftlite.security.distinguished_names import rfc2253
from kraftlite.tls.contexts import Loaded, check_successor, load, look, suite_allowed
from kraftlite.tls.revocation import Name
from kraftlite.tls.settings import TlsSettings
from kraftlite.tls.transport import TlsTransport

_REVOKED: Final = "the peer's certificate is revoked"


class TlsSource:
    """The contexts that are in force. Everything but `reload` and `is_stale`, which read files, is for the loop.

    `authenticates`: a client's certificate says who it is (protocol SSL); with SASL behind it, it does not.
    """

    def __init__(self, loaded: Loaded, *, alpn: tuple[str, ...] = (), authenticates: bool = True) -> None:
        self._loaded = loaded
        self._alpn = alpn
        self._authenticates = authenticates
        self._peers: WeakKeyDictionary[TlsTransport, Name] = WeakKeyDictionary()
        """The connections whose peers have shown a certificate."""

    @classmethod
    def of(cls, settings: TlsSettings, *, alpn: tuple[str, ...] = (), authenticates: bool = True) -> TlsSource:
        """Read the stores for the first time. Raises TlsError."""
        return cls(load(settings, alpn=alpn), alpn=alpn, authenticates=authenticates)

    @property
    def loaded(self) -> Loaded:
        return self._loaded

    @property
    def settings(self) -> TlsSettings:
        return self._loaded.settings

    def server_context(self) -> ssl.SSLContext:
        """The one for the next connection that is accepted."""
        assert self._loaded.server is not None, "a listener has a key store"
        return self._loaded.server

    def client_context(self) -> ssl.SSLContext:
        """The one for the next connection that is dialled."""
        return self._loaded.client

    def is_stale(self) -> bool:
        """Return whether the files have changed since they were read."""
        return look(self.settings) != self._loaded.seen

    def reload(self, settings: TlsSettings | None = None) -> Loaded:
        """Read the stores again, by these settings or those in force; `replace` puts them in force. Raises TlsError."""
        new = load(settings or self.settings, alpn=self._alpn)
        check_successor(self._loaded, new)
        return new

    def replace(self, loaded: Loaded) -> None:
        """Use these for connections from now on. Those that are open stay, but for peers whose certificate is revoked (SE-07)."""
        before, self._loaded = self._loaded, loaded
        if loaded.revoked <= before.revoked:
            return
        for transport in [it for it, name in self._peers.items() if name in loaded.revoked]:
            transport.set_extra_info("tls_failure", _REVOKED)
            transport.abort()

    def watch(self, transport: TlsTransport) -> None:
        """Close a connection that was dialled when the certificate of its peer is revoked. Raises ValueError when it is."""
        certificate = transport.certificate
        if certificate is not None:
            self._watch(transport, x509.load_der_x509_certificate(certificate))

    def _watch(self, transport: TlsTransport, certificate: x509.Certificate) -> None:
        name = Name.of(certificate)
        if name in self._loaded.revoked:
            raise ValueError(_REVOKED)
        self._peers[transport] = name

    def principal_of(self, transport: TlsTransport) -> Principal:
        """Return who has connected, by its certificate. Raises ValueError when it must not: no rule fits its name, or the
        cipher suite is not allowed, or the certificate was revoked during the handshake."""
        cipher = transport.cipher
        if cipher is not None and not suite_allowed(self.settings, cipher[0]):
            raise ValueError(f"the cipher suite {cipher[0]} is not among ssl.cipher.suites")
        shown = transport.certificate
        if shown is None:
            return ANONYMOUS
        certificate = x509.load_der_x509_certificate(shown)
        self._watch(transport, certificate)
        if not self._authenticates:
            return ANONYMOUS
        name = rfc2253(certificate.subject.public_bytes())
        user = self.settings.rules.name_of(name)
        if user is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules fits the name of its certificate, {name}")
        return Principal(USER, user)

    def describe(self) -> tuple[str, str]:
        """The subject of the own certificate, and the time at which it expires."""
        leaf = self._loaded.leaf
        if leaf is None:
            return "", ""
        return rfc2253(leaf.subject.public_bytes()), leaf.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
