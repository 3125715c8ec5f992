"""The live page on real sockets in a thread of its own, for tests whose browser has the loop of theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraftlite.ui.serve import Link, listen, serve
from kraftlite.ui.whom import InDirectory


@contextmanager
def serving(directory: Path) -> Iterator[Link]:
    ready = threading.Event()
    found: list[Link] = []
    loop = asyncio.new_event_loop()

    def say(link: Link) -> None:
        found.append(link)
        ready.set()

    with listen(0) as sock:
        task = loop.create_task(serve(InDirectory(directory), sock, say))

        def run() -> None:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert ready.wait(60)
            yield found[0]
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join(60)
            loop.close()
