"""The SASL of each listener, from its keys. Source: KIP-85, KIP-103; SE-10 to SE-15."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from kraftlite.config.listener_settings import LISTENER_PREFIX, key_for, setting_of
from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.config_effects import EFFECTS, Effect
from kraftlite.model.configdef import ConfigKey
from kraftlite.security.jaas import MECHANISMS, LoginModule, parse_jaas
from kraftlite.security.listener_sasl import ListenerSasl
from kraftlite.security.oauthbearer import UnsecuredRules
from kraftlite.security.plain import plain_users
from kraftlite.security.signed_tokens import SignedRules, is_available
from kraftlite.tls.options import CLIENT_OPTIONS
from kraftlite.tls.settings import read_settings

_MODULES: Final = "org.apache.kafka.common.security."
_MODULE_OF: Final = {
    "PLAIN": f"{_MODULES}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}scram.ScramLoginModule",
    "OAUTHBEARER": f"{_MODULES}oauthbearer.OAuthBearerLoginModule",
}
_HANDLER: Final = "sasl.server.callback.handler.class"
_OAUTH: Final = f"{_MODULES}oauthbearer."
_SIGNED_HANDLERS: Final = (
    f"{_OAUTH}OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler",
)
_UNSECURED_HANDLER: Final = f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""In Kafka a property of the Java machine; here a key like the others."""
_LOGIN_OPTIONS: Final = ("clientId", "clientSecret", "scope", "extension_")
"""The options of the login module with which Kafka's broker itself would log in."""
_JAAS: Final = "sasl.jaas.config"
_ENABLED: Final = "sasl.enabled.mechanisms"
_REAUTHENTICATE: Final = "connections.max.reauth.ms"
_OF_LISTENER: Final = re.compile(
    rf"(?P<listener>.+?)(?:\.(?P<mechanism>{'|'.join(it.lower() for it in MECHANISMS)}))?\."
    r"(?P<key>(?:sasl|ssl|connections?|principal|max)\..+)"
)
_OF_LOGINS: Final = (_ENABLED, _REAUTHENTICATE, "sasl.server.max.receive.size")
_OF_MECHANISM: Final = (_JAAS, _REAUTHENTICATE, _HANDLER)
"""The keys that may stand behind the name of a mechanism; for OAUTHBEARER all of its own, too."""


def listeners_sasl(values: Mapping[str, str], listeners: Sequence[str], problems: list[str]) -> dict[str, ListenerSasl]:
    """Read the SASL of these listeners, by their names. What is wrong becomes a problem; no problem shows a password."""
    return {name: _Reader(values, name, problems).read() for name in listeners}


class _Reader:
    def __init__(self, values: Mapping[str, str], listener: str, problems: list[str]) -> None:
        self._values = values
        self._listener = listener
        self._problems = problems

    def read(self) -> ListenerSasl:
        mechanisms = self._mechanisms()
        users: dict[str, str] = {}
        oauth: UnsecuredRules | SignedRules | None = None
        for mechanism in mechanisms:
            module = self._module(mechanism)
            if mechanism == "PLAIN":
                users = self._plain_users(module)
            elif mechanism == "OAUTHBEARER":
                oauth = self._oauth(module)
        return ListenerSasl(
            mechanisms=mechanisms,
            plain_users=users,
            oauth=oauth,
            max_reauth_ms={it: self._number(_REAUTHENTICATE, it) for it in mechanisms},
            failure_delay_ms=self._number("connection.failed.authentication.delay.ms"),
            max_receive_bytes=self._number("sasl.server.max.receive.size"),
        )

    def _mechanisms(self) -> tuple[str, ...]:
        text = setting_of(self._values, self._listener, _ENABLED) or ""
        found = tuple(dict.fromkeys(item.strip().upper() for item in text.split(",") if item.strip()))
        unknown = [it for it in found if it not in MECHANISMS]
        if unknown == ["GSSAPI"] and len(found) == 1:
            self._problem(
                _ENABLED, f"GSSAPI, which is its default, is not supported; allowed is a list of {', '.join(MECHANISMS)}"
            )
        elif unknown or not found:
            told = f"{', '.join(unknown)} is not supported" if unknown else "it is empty"
            self._problem(_ENABLED, f"{told}; allowed is a list of {', '.join(MECHANISMS)}")
        return tuple(it for it in found if it in MECHANISMS)

    def _module(self, mechanism: str) -> LoginModule | None:
        """The login module of a mechanism; None when it is not there, or cannot be read."""
        key = key_for(self._listener, _JAAS, mechanism)
        text = self._values.get(key)
        if text is None:
            return None
        try:
            module = parse_jaas(text)
        except ValueError as error:
            self._problems.append(f"{key}: {error}")
            return None
        if module.class_name != _MODULE_OF[mechanism]:
            self._problems.append(f"{key}: its class is not that of {mechanism}, which is {_MODULE_OF[mechanism]}")
            return None
        return module

    def _plain_users(self, module: LoginModule | None) -> dict[str, str]:
        key = key_for(self._listener, _JAAS, "PLAIN")
        if module is None:
            if key not in self._values:
                self._problems.append(
                    f'{key} is not set, and PLAIN has no users without it: {_MODULE_OF["PLAIN"]} required user_alice="…";'
                )
            return {}
        try:
            return plain_users(module)
        except ValueError as error:
            self._problems.append(f"{key}: {error}")
            return {}

    def _oauth(self, module: LoginModule | None) -> UnsecuredRules | SignedRules | None:
        url = self._text(_URL)
        handler = self._text(_HANDLER)
        if handler is not None and handler not in (*_SIGNED_HANDLERS, _UNSECURED_HANDLER):
            allowed = f"{_SIGNED_HANDLERS[0]} or {_UNSECURED_HANDLER}"
            self._problem(_HANDLER, f"Java classes cannot be loaded; allowed is {allowed}", "OAUTHBEARER")
            return None
        if url is None and handler in _SIGNED_HANDLERS:
            self._problem(_URL, "it is not set, and signed tokens need it: the URL of a JSON Web Key Set", "OAUTHBEARER")
            return None
        if url is not None and handler != _UNSECURED_HANDLER:
            return self._signed(url, {} if module is None else module.options)
        if module is None:
            key = key_for(self._listener, _JAAS, "OAUTHBEARER")
            if key not in self._values:
                self._problems.append(
                    f"{key} is not set, nor {_URL}: OAUTHBEARER needs the URL of the keys that sign tokens, or, for development "
                    f"alone, {_MODULE_OF['OAUTHBEARER']} required; which takes tokens that nobody has signed"
                )
            return None
        try:
            return UnsecuredRules.of(module.options)
        except ValueError as error:
            self._problems.append(f"{key_for(self._listener, _JAAS, 'OAUTHBEARER')}: {error}")
            return None

    def _signed(self, url: str, options: Mapping[str, str]) -> SignedRules | None:
        allowed = [it.strip() for it in self._values.get(ALLOWED_URLS, "").split(",") if it.strip()]
        parts = urlsplit(url)
        problem = None
        if parts.scheme not in ("https", "http", "file") or "@" in parts.netloc or (parts.scheme == "file") == bool(parts.netloc):
            problem = "allowed is https://…, http://… or file:///…, without user and password"
        elif url not in allowed:
            problem = f"{ALLOWED_URLS} does not list it; allowed are only URLs that are listed there"
        elif not is_available():
            problem = "PyJWT and cryptography, which check signatures, are not installed: pip install 'kraftlite[oauth]'"
        if problem is not None:
            self._problem(_URL, problem, "OAUTHBEARER")
            return None
        tls = {name: text for name, text in options.items() if name in CLIENT_OPTIONS}
        problems: list[str] = []
        read_settings(tls.get, lambda key: key, problems)
        if tls and parts.scheme != "https":
            problems.append(f"{next(iter(tls))} has no effect: {_URL} is not https")
        unknown = [it for it in options if it not in CLIENT_OPTIONS and not it.startswith(_LOGIN_OPTIONS)]
        problems += [f"{it} is no option of it" for it in unknown]
        if problems:
            key = key_for(self._listener, _JAAS, "OAUTHBEARER")
            self._problems.extend(f"{key}: {problem}" for problem in problems)
            return None
        return SignedRules(
            url=url,
            tls=tls,
            refresh_ms=self._number("sasl.oauthbearer.jwks.endpoint.refresh.ms", "OAUTHBEARER"),
            retry_ms=self._number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "OAUTHBEARER"),
            retry_max_ms=self._number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "OAUTHBEARER"),
            audiences=tuple(
                it.strip() for it in (self._text("sasl.oauthbearer.expected.audience") or "").split(",") if it.strip()
            ),
            issuer=self._text("sasl.oauthbearer.expected.issuer"),
            clock_skew_s=self._number("sasl.oauthbearer.clock.skew.seconds", "OAUTHBEARER"),
            scope_claim=self._text("sasl.oauthbearer.scope.claim.name") or "scope",
            principal_claim=self._text("sasl.oauthbearer.sub.claim.name") or "sub",
        )

    def _text(self, name: str) -> str | None:
        text = setting_of(self._values, self._listener, name, "OAUTHBEARER")
        return text.strip() or None if text is not None else None

    def _number(self, name: str, mechanism: str | None = None) -> int:
        """A number for this listener. One that cannot be read is a problem already."""
        key: ConfigKey = BROKER_CONFIGS[name]
        text = setting_of(self._values, self._listener, name, mechanism)
        assert key.default is not None
        try:
            return int(key.parse(key.default if text is None else text))
        except ValueError:
            return int(key.default)

    def _problem(self, name: str, text: str, mechanism: str | None = None) -> None:
        own = next(
            (it for it in (key_for(self._listener, name, mechanism), key_for(self._listener, name)) if it in self._values), name
        )
        self._problems.append(f"{own}: listener {self._listener} has SASL: {text}")


def misplaced_sasl(given: Sequence[str], listeners: Mapping[str, ListenerSasl]) -> list[str]:
    """Find users and options of mechanisms under keys that no listener reads: they would protect nothing."""
    somewhere = {mechanism for sasl in listeners.values() for mechanism in sasl.mechanisms}
    found = []
    for key in given:
        if key == _JAAS:
            found.append(f"{key}: brokers read it with a listener and a mechanism before it: listener.name.NAME.plain.{_JAAS}")
        elif key.startswith(LISTENER_PREFIX):
            parts = _OF_LISTENER.fullmatch(key.removeprefix(LISTENER_PREFIX))
            problem = None if parts is None else _misplaced(parts["listener"], parts["mechanism"], parts["key"], listeners)
            found += [] if problem is None else [f"{key}: {problem}"]
        elif _is_of_oauth(key) and listeners and "OAUTHBEARER" not in somewhere:
            found.append(f"{key}: no listener has OAUTHBEARER among its {_ENABLED}")
    return found


def unused_sasl(given: Mapping[str, str], listeners: Mapping[str, ListenerSasl]) -> list[str]:
    """One line for keys that say how clients log in where no listener has them log in."""
    with_sasl = {listener.lower() for listener in listeners}
    found = []
    for key in sorted(given):
        listener, dot, name = key.removeprefix(LISTENER_PREFIX).partition(".")
        if not key.startswith(LISTENER_PREFIX):
            heard, name = bool(with_sasl), key
        else:
            heard = not dot or listener in with_sasl
        effect = EFFECTS.get(name)
        if not heard and name in _OF_LOGINS and effect is not None and effect.departs(given[key]):
            found.append(key)
    if not found:
        return []
    where = "those listeners do not speak" if with_sasl else "no listener speaks"
    return [f"{where} SASL (protocol SASL_SSL or SASL_PLAINTEXT), so these keys have no effect: {', '.join(found)}"]


def _misplaced(listener: str, mechanism: str | None, name: str, listeners: Mapping[str, ListenerSasl]) -> str | None:
    """Say why a key of a listener has no effect; None: it has, it is no key of SASL, or it is refused for another reason."""
    if name == _JAAS and mechanism is None:
        return f"allowed is listener.name.NAME.MECHANISM.{_JAAS} with one of {', '.join(MECHANISMS)}"
    known = EFFECTS.get(name)
    if (mechanism is None and not _is_of_oauth(name)) or (known is not None and known.rule.effect is Effect.REFUSED):
        return None
    found = next((sasl for it, sasl in listeners.items() if it.lower() == listener), None)
    if found is None:
        return f"{listener} is not a listener with SASL ({', '.join(sorted(listeners)) or 'there is none'})"
    wanted = "OAUTHBEARER" if mechanism is None else mechanism.upper()
    if mechanism is not None and name not in _OF_MECHANISM and not (wanted == "OAUTHBEARER" and _is_of_oauth(name)):
        return f"it does not differ by mechanism; what does is {', '.join(_OF_MECHANISM)}"
    if wanted not in found.mechanisms and name not in (_JAAS, _REAUTHENTICATE):
        return f"{listener} has not {wanted} among its {_ENABLED}"
    if name == _HANDLER and wanted != "OAUTHBEARER":
        return f"Java classes cannot be loaded, and {wanted} has no other way to know its users; remove it"
    return None


def _is_of_oauth(name: str) -> bool:
    return name.startswith("sasl.oauthbearer.") or name == _HANDLER
