"""The parts that the commands on metadata logs share: opening the files, and telling what cannot be read of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlite.model.shown import printable

if TYPE_CHECKING:
    from kraftlite.postmortem.replay import MetadataAt

_NAMED = 5
"""So many of the logs that are not read are named."""


def say(line: str) -> None:
    """Print a line; what a terminal would act upon is escaped: names and values are whatever clients sent."""
    click.echo(printable(line))


def complain(line: str) -> None:
    click.echo(printable(line), err=True)


def tell_notes(metadata: MetadataAt) -> None:
    """Tell what could not be read, once."""
    for line in metadata.notes.all():
        complain(f"note: {line}")
    metadata.notes.lines.clear()
    metadata.notes.more = 0


@contextmanager
def metadata_errors() -> Iterator[None]:
    from kraftlite.postmortem.files import NoMetadata

    try:
        yield
    except NoMetadata as error:
        raise click.ClickException(str(error)) from None


def opened(given: Sequence[Path]) -> MetadataAt:
    """The metadata log in these files or directories that goes furthest. Raises NoMetadata."""
    from kraftlite.postmortem.files import find
    from kraftlite.postmortem.reading import last_record
    from kraftlite.postmortem.replay import MetadataAt

    found = find(given)
    if len(found) == 1:  # to look how far it goes would read all of it
        return MetadataAt(found[0])
    ends = {log.name: last_record(log) for log in found}
    found.sort(key=lambda log: ends[log.name], reverse=True)
    metadata = MetadataAt(found[0])
    behind = [log.name for log in found if ends[log.name] != ends[found[0].name]]
    if behind:
        others = ", ".join(behind[:_NAMED]) + (" …" if len(behind) > _NAMED else "")
        metadata.notes.add(f"read is {found[0].name}, which goes furthest; there are also {others}", damage=False)
    return metadata
