"""The error of a setting or a store that cannot be used."""

from __future__ import annotations


class TlsError(ValueError):
    """A setting or a store cannot be used. The text names the setting and says what is allowed; it never has a secret in it."""
