"""The Prometheus pages of brokers, as commands read them."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import click

from kraftlite.model.limits import MIB

_TIMEOUT_S: Final = 10
_MOST_BYTES: Final = 16 * MIB


def pages_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--metrics", "pages", multiple=True, metavar="HOST:PORT", help=help_text)


def read_pages(pages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each page and its text; those of the brokers of the local cluster when none is given. Raises ClickException."""
    for page in pages or _local_pages():
        yield page, _read(page)


def _local_pages() -> list[str]:
    from kraftlite.cli.common import data_dir_of
    from kraftlite.local.state import LocalError, load

    try:
        nodes = load(data_dir_of(None)).nodes
    except LocalError as error:
        raise click.ClickException(str(error)) from None
    pages = [node.metrics for node in nodes if node.metrics is not None and node.is_broker]
    if not pages:
        raise click.ClickException(
            "no broker of the local cluster has a page of metrics: start it with --config kraftlite.metrics.port=0, "
            "or name a page with --metrics HOST:PORT"
        )
    return pages


def _read(page: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{page}/metrics", timeout=_TIMEOUT_S) as answer:
            body: bytes = answer.read(_MOST_BYTES)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise click.ClickException(f"the metrics of {page} cannot be read: {error}") from None
    return body.decode("utf-8", "replace")
