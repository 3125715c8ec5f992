"""The calls that tell what was: the state at a moment, one record of the metadata log, the metadata at an offset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kraftlite.local.metadata import Live
from kraftlite.local.state import LocalCluster, LocalError
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.config_effects import is_sensitive
from kraftlite.obs.explain import Subject, UnknownSubject
from kraftlite.obs.faults import EVENTS
from kraftlite.obs.recording_reader import read_bytes
from kraftlite.postmortem import tree
from kraftlite.postmortem.files import METADATA_LOG, NoMetadata, find
from kraftlite.postmortem.reading import Notes
from kraftlite.postmortem.replay import MetadataAt
from kraftlite.ui.answers import refusal
from kraftlite.ui.calls import DEFAULT_PATH, MAX_FILES, MAX_NAME
from kraftlite.ui.hear import now_ms
from kraftlite.ui.quorum_tail import records
from kraftlite.ui.replay import state_at
from kraftlite.ui.stream import MAX_FILTER
from kraftlite.ui.timeline import stories_of
from kraftlite.ui.told import Wrong, checked, whole_of
from kraftlite.ui.watch import Watcher

_SECRET: Final = ("scram", "delegationToken")
"""The parts of the metadata from which one might log in."""


class Past:
    """Answers from what is kept in memory and from the files of controllers. It runs on a thread, one at a time (`telling`)."""

    def __init__(self, watcher: Watcher, telling: asyncio.Lock) -> None:
        self._watcher = watcher
        self._telling = telling
        self.handlers: dict[str, Callable[[Request], Any]] = {"record": checked(self._record), "image": checked(self._image)}
        self.state = checked(self._state)

    async def _state(self, request: Request) -> Response:
        at_ms = whole_of(request, "at", now_ms(), most=now_ms())
        wanted = request.query_params.get("q", "")[:MAX_FILTER]
        words = self._watcher.words_of_late()
        ledger = sorted((it for it in self._watcher.record.since(0)[1] if it.event in EVENTS), key=lambda event: event.ms)
        async with self._telling:
            found = await asyncio.to_thread(lambda: state_at(read_bytes(words), ledger, at_ms, wanted))
        if found is None:
            return refusal(
                404, f"at: nothing is kept of {at_ms}: it is before what this page has heard, or longer ago than it keeps"
            )
        return JSONResponse(found)

    async def _record(self, request: Request) -> Response:
        given = str(request.path_params["offset"])
        if not (given.isascii() and given.isdigit() and len(given) <= 15):
            raise Wrong("offset: allowed is a whole number from 0 on")
        offset = int(given)

        def find() -> dict[str, Any]:
            history = self._watcher.record.history()
            found = [it for it in records(history, offset) if it["offset"] == offset]
            return {"offset": offset, "records": found, "stories": stories_of(history, Subject("record", given), 0)}

        try:
            async with self._telling:
                told = await asyncio.to_thread(find)
        except UnknownSubject as error:
            return refusal(404, str(error))
        return JSONResponse(told)

    async def _image(self, request: Request) -> Response:
        offset = whole_of(request, "at_offset", -1)
        path = request.query_params.get("path", DEFAULT_PATH)[:MAX_NAME]
        cluster = self._watcher.cluster
        try:
            async with self._telling:
                found = await asyncio.to_thread(lambda: _image(cluster, None if offset < 0 else offset, path))
        except NoMetadata as error:
            return refusal(404, str(error))
        except OSError as error:
            return refusal(409, f"the metadata log of no controller can be read from here: {error}")
        if not found["files"]:
            return refusal(404, f"path {path}: the metadata has no such part, or it is one with credentials")
        return JSONResponse(found)


def _image(cluster: LocalCluster, offset: int | None, path: str) -> dict[str, Any]:
    """Raises NoMetadata, OSError."""
    if not cluster.data_dir:
        raise NoMetadata("the page looks at nodes by their addresses, and not at their files")
    notes: list[str] = []
    try:
        with closing(Live(cluster)) as live:
            image, said, committed = live.metadata.at(offset), live.metadata.notes, True
    except LocalError as error:
        notes.append(f"{error}: what follows may not be committed")
        image, said = _newest(cluster, offset)
        committed = False
    files: dict[str, str] = {}
    more = False
    for name, content in _files(image, path):
        if len(files) == MAX_FILES:
            more = True
            break
        files[name] = content
    at = image.provenance
    return {
        "offset": at.last_contained_offset,
        "epoch": at.last_contained_epoch,
        "committed": committed,
        "files": files,
        "more": more,
        "notes": [*notes, *said.all()],
    }


def _newest(cluster: LocalCluster, offset: int | None) -> tuple[MetadataImage, Notes]:
    """Read the log that goes furthest: that of a controller alone may not have what was committed last."""
    logs = [Path(node.data_dir) / METADATA_LOG for node in cluster.nodes if node.is_controller]
    found = [MetadataAt(files) for files in find([log for log in logs if log.is_dir()] or logs)]
    images = [(it.at(), it) for it in found]
    image, metadata = max(images, key=lambda it: it[0].provenance.last_contained_offset)
    return (image if offset is None else metadata.at(offset)), metadata.notes


def _files(image: MetadataImage, path: str) -> Iterator[tuple[str, str]]:
    """The files at and below a path, each by its own path."""
    for parts, node in tree.visit(tree.root(image), path):
        yield from _below(parts, node)


def _below(parts: tuple[str, ...], node: tree.Node) -> Iterator[tuple[str, str]]:
    if parts[:1] == ("local",) or (parts[1:2] and parts[1] in _SECRET):
        return
    if isinstance(node, tree.File):
        hidden = parts[1:2] == ("configs",) and is_sensitive(parts[-1])
        yield "/" + "/".join(parts), "[hidden]" if hidden else node.text
        return
    for name, child in node.children():
        yield from _below((*parts, name), child)
