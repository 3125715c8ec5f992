"""The certificates of one listener, which may be replaced while it runs, and the principals of its peers.

Source: SE-04, SE-05.
"""

from __future__ import annotations

import ssl

from cryptography import x509

from kraftlite.model.principal import ANONYMOUS, USER, Principal
from kraftlite.security.distinguished_names import rfc2253
from kraftlite.tls.contexts import Loaded, check_successor, load, look, suite_allowed
from kraftlite.tls.settings import TlsSettings
from kraftlite.tls.transport import TlsTransport


class TlsSource:
    """The contexts that are in force. Everything but `reload` and `is_stale`, which read files, is for the loop.

    `authenticates`: a client's certificate says who it is (protocol SSL); with SASL behind it, it does not.
    """

    def __init__(self, loaded: Loaded, *, alpn: tuple[str, ...] = (), authenticates: bool = True) -> None:
        self._loaded = loaded
        self._alpn = alpn
        self._authenticates = authenticates

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
        """Use these for connections from now on; those that are open stay."""
        self._loaded = loaded

    def principal_of(self, transport: TlsTransport) -> Principal:
        """Return who has connected, by its certificate. Raises ValueError when it must not: no rule fits its name, or the
        cipher suite is not allowed."""
        cipher = transport.cipher
        if cipher is not None and not suite_allowed(self.settings, cipher[0]):
            raise ValueError(f"the cipher suite {cipher[0]} is not among ssl.cipher.suites")
        certificate = transport.certificate if self._authenticates else None
        if certificate is None:
            return ANONYMOUS
        name = rfc2253(x509.load_der_x509_certificate(certificate).subject.public_bytes())
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
