"""Import this before kio: without its hook into hypothesis.

Where hypothesis is installed, as it is where tests run, kio registers strategies with it when its types are first imported.
That takes seconds on the node's loop, tens of megabytes, and leaves a `.hypothesis` in the working directory.
"""

from __future__ import annotations

from kraftlite.runtime.lean_import import hidden

with hidden("hypothesis"):
    import kio.static.primitive  # noqa: F401
