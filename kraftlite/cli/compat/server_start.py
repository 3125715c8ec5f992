"""kafka-server-start: a node in the foreground. Source: TO-08."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError


def run(arguments: Sequence[str]) -> int:
    if "-daemon" in arguments:
        raise ToolError("-daemon is not supported: run it in the background of your shell, or `kraftlite up --detach`")
    parser = Parser("kafka-server-start", "USAGE: kafka-server-start server.properties [--override property=value]*")
    parser.add_argument("properties", nargs="?", metavar="server.properties")
    parser.add_argument("--override", action="append", default=[], metavar="PROPERTY=VALUE")
    options = parser.read(arguments)
    if not options.properties:
        raise UsageError("USAGE: kafka-server-start server.properties [--override property=value]*")
    from kraftlite.cli import nodes

    extra = [part for item in options.override for part in ("--override", item)]
    status = nodes.start.main(
        args=["--config", options.properties, *extra], prog_name="kafka-server-start", standalone_mode=False
    )
    return status if isinstance(status, int) else 0
