"""A local cluster of real node processes on loopback."""

from kraftlite import require_assertions

require_assertions()
