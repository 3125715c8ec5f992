"""Topics that are named by a pattern, as Kafka's tools take it. Source: Kafka's IncludeList; TO-10, TO-34."""

from __future__ import annotations

import re
import warnings
from typing import Final

from kraftlite.cli.compat.tool import ToolError

_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|$)")


def topic_pattern(text: str) -> re.Pattern[str]:
    r"""The pattern that a name has to match as a whole. As in Kafka a comma is an alternative, blanks and outer quotes do not
    count, and what is between \Q and \E stands for itself. Raises ToolError."""
    expression = re.sub(r"^[\"']+|[\"']+$", "", text.strip().replace(",", "|").replace(" ", ""))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(_QUOTED.sub(lambda found: re.escape(found[1]), expression))
    except re.error as error:
        raise ToolError(f"{expression} is an invalid regex: {error}") from None


def comma_list(text: str) -> list[str]:
    """The items between commas. Empty ones at the end do not count, as in Java."""
    items = text.split(",")
    while len(items) > 1 and not items[-1]:
        items.pop()
    return items if items[0] or "," not in text or len(items) > 1 else []
