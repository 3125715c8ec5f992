"""The vocabulary: ids, units, errors, limits and the messages that nodes exchange. Imports nothing of ours.

Everything that decides or reads data imports this package, so it is where `python -O` is refused (ImportError).
"""

from kraftlite import require_assertions

require_assertions()
