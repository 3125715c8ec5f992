"""What is done in the call that asks for it, when nothing has to be waited for: produces that begin transactions."""

from __future__ import annotations

from kraftlite.replication import produce
from kraftlite.replication.produce import ProducePath
from kraftlite.runtime import begun
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant(
    "appended-unanswered",
    "a batch that begins a transaction is appended before its coordinator has answered",
    expects=("66", "65", "69", "liveness", "TransactionsSeen"),
)
def appended_unanswered(patch: Patch) -> None:
    """KIP-890: its guard is the current one, and nobody has added the partition."""
    patch.edit(
        ProducePath,
        "append",
        ("if enrolment is not None or not request.go_on(CHECK_IN_PLACE):", "if not request.go_on(CHECK_IN_PLACE):"),
    )


@mutant(
    "rest-forgotten",
    "what had to wait is never gone on with",
    expects=("66", "liveness", "ProducesAnswered", "crash"),
)
def rest_forgotten(patch: Patch) -> None:
    """A coroutine that began in a call, and whose rest nobody drives: a produce without an answer."""
    patch.edit(
        begun,
        "begin",
        ("return tasks.spawn(_Rest(coro, waits_for), name=name)", "return None"),
        also=(produce,),
    )
