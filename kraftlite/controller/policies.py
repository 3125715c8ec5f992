"""Policies between a controller's check of a request and its records, without waiting in between (KIP-108, KIP-133; CM-65).

A policy is foreign code that may take its time, and an operation of the controller may not. So an operation is computed with the
verdicts that are known. When one is missing it writes nothing, the policies are asked off the loop, and it is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kraftlite.model.errors import ApiError
from kraftlite.model.policy import PolicyKind, PolicyQuestion


class Verdicts:
    """The verdicts on one request so far. `missing`: what an operation asked for that is not known yet."""

    def __init__(self, has: Callable[[PolicyKind], bool]) -> None:
        """`has`: whether there is a policy for such questions."""
        self._has = has
        self._known: list[tuple[PolicyQuestion, ApiError | None]] = []
        self.missing: list[PolicyQuestion] = []

    def check(self, question: PolicyQuestion) -> None:
        """Raises the ApiError of the policy that refuses this. A question without a verdict passes, and is missing then."""
        if not self._has(question.kind):
            return
        for position, (known, verdict) in enumerate(self._known):
            if known == question:
                # An operation asks in the same order each time: the next one is usually behind it.
                del self._known[position]
                self._known.append((known, verdict))
                if verdict is not None:
                    raise verdict
                return
        self.missing.append(question)

    def add(self, questions: Sequence[PolicyQuestion], verdicts: Sequence[ApiError | None]) -> None:
        """Take the verdicts on questions that were missing, in their order."""
        self._known += zip(questions, verdicts, strict=True)
        self.missing = []


def pending(verdicts: Verdicts | None) -> bool:
    """Return whether a verdict is missing, so that nothing may be written yet."""
    return verdicts is not None and bool(verdicts.missing)
