"""kafka-delegation-tokens. Source: KIP-48; Kafka's DelegationTokenCommand."""

from __future__ import annotations

import argparse
import base64
import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import click

from kraftlite.cli.compat.tool import Parser, UsageError, cluster_of, exactly_one, whole
from kraftlite.client.tokens import Token, create_token, describe_tokens, expire_token, renew_token
from kraftlite.model.principal import Principal
from kraftlite.model.shown import printable

_ROW = "%-15s %-30s %-15s %-15s %-25s %-15s %-15s %-15s"
_NEEDS = {
    "create": ("max_life_time_period",),
    "renew": ("hmac", "renew_time_period"),
    "expire": ("hmac", "expiry_time_period"),
    "describe": (),
}
_EXCLUDES = {
    "create": ("hmac", "renew_time_period", "expiry_time_period"),
    "renew": ("renewer_principal", "max_life_time_period", "expiry_time_period", "owner_principal"),
    "expire": ("max_life_time_period", "renew_time_period", "owner_principal"),
    "describe": ("renew_time_period", "max_life_time_period", "hmac", "expiry_time_period"),
}


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-delegation-tokens", "This tool helps to create, renew, expire, or describe delegation tokens.")
    parser.connection()
    for name in ("create", "renew", "expire", "describe"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("owner-principal", "renewer-principal"):
        parser.add_argument(f"--{name}", action="append", default=[])
    for name in ("max-life-time-period", "renew-time-period", "expiry-time-period"):
        parser.add_argument(f"--{name}", type=whole(64))
    parser.add_argument("--hmac")
    options = parser.read(arguments)
    message = "Command must include exactly one action: --create, --renew, --expire or --describe"
    action = exactly_one(options, ("create", "renew", "expire", "describe"), message)
    _check(options, action)
    {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}[action](options)
    return 0


def _check(options: argparse.Namespace, action: str) -> None:
    for name in _NEEDS[action]:
        if getattr(options, name) is None:
            raise UsageError(f'Missing required argument "[{name.replace("_", "-")}]"')
    for name in _EXCLUDES[action]:
        if getattr(options, name) not in (None, []):
            raise UsageError(f'Option "[{action}]" can\'t be used with option "[{name.replace("_", "-")}]"')


def _create(options: argparse.Namespace) -> None:
    renewers, owners = _principals(options.renewer_principal), _principals(options.owner_principal)
    period = options.max_life_time_period
    click.echo(f"Calling create token operation with renewers :{_listed(renewers)} , max-life-time-period :{period}")
    token = create_token(cluster_of(options), owners[0] if owners else None, renewers, period)
    click.echo(f"Created delegation token with tokenId : {token.token_id}")
    _print([token])


def _renew(options: argparse.Namespace) -> None:
    period = options.renew_time_period
    click.echo(f"Calling renew token operation with hmac :{options.hmac} , renew-time-period :{period}")
    expiry_ms = renew_token(cluster_of(options), _code(options.hmac), period)
    click.echo(f"Completed renew operation. New expiry date : {_date(expiry_ms)}", nl=False)


def _expire(options: argparse.Namespace) -> None:
    period = options.expiry_time_period
    click.echo(f"Calling expire token operation with hmac :{options.hmac} , expire-time-period :{period}")
    expiry_ms = expire_token(cluster_of(options), _code(options.hmac), period)
    click.echo(f"Completed expire operation. New expiry date : {_date(expiry_ms)}", nl=False)


def _describe(options: argparse.Namespace) -> None:
    owners = _principals(options.owner_principal)
    if owners:
        click.echo(f"Calling describe token operation for owners: {_listed(owners)}")
    else:
        click.echo("Calling describe token operation for current user.")
    tokens = describe_tokens(cluster_of(options), owners or None)
    click.echo(f"Total number of tokens : {len(tokens)}", nl=False)
    _print(tokens)


def _print(tokens: Iterable[Token]) -> None:
    click.echo("\n" + _ROW % ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE"))
    for token in tokens:
        cells: tuple[Any, ...] = (
            token.token_id,
            base64.b64encode(token.hmac).decode(),
            token.owner,
            token.requester,
            _listed(token.renewers),
            *(_date(it) for it in (token.issued_ms, token.expiry_ms, token.max_ms)),
        )
        click.echo("\n" + _ROW % tuple(printable(str(cell)) for cell in cells))


def _principals(texts: Sequence[str]) -> list[Principal]:
    try:
        return [Principal.parse(text) for text in texts]
    except ValueError as error:
        raise UsageError(str(error)) from None


def _code(text: str) -> bytes:
    """Read base64, as Java does with its padding or without it."""
    padding = "" if "=" in text else "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text + padding, validate=True)
    except ValueError:
        raise UsageError("--hmac is not base64") from None


def _listed(principals: Iterable[Principal]) -> str:
    return f"[{', '.join(map(str, principals))}]"


def _date(epoch_ms: int) -> str:
    return datetime.datetime.fromtimestamp(epoch_ms / 1000).strftime("%Y-%m-%dT%H:%M")
