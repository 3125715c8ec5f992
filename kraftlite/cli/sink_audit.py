"""sink audit: every row that readers of committed records see, against what was decided (SX-07)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from kraftlite.cli.common import output_option, print_json, print_table
from kraftlite.cli.sink import not_state, reader, state_topic_option
from kraftlite.cli.target import Target, target_options
from kraftlite.exactly_once.records import BadRecord

if TYPE_CHECKING:
    from kraftlite.audit.sink import SinkReport
    from kraftlite.client.cluster import ClusterClient

OK, VIOLATION, COULD_NOT_RUN = 0, 1, 2
_SHOWN: Final = 30


class CannotRun(click.ClickException):
    """Nothing was found out: exit status 2, which a violation (1) must not be taken for."""

    exit_code = COULD_NOT_RUN


@click.command("audit")
@click.argument("query", required=False)
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Name all that the query writes to. Default: all topics.")
@state_topic_option
@target_options
@output_option
def audit_command(query: str | None, topics: tuple[str, ...], state_topic: str, target: Target, output: str) -> None:
    """Read topics as readers of committed records do, and compare every row with the decisions of QUERY, or of all queries.

    Exit status: 0 every visible row was decided, once, and every decided row that was committed is there; 1 something is wrong;
    2 it could not run.
    """
    from kraftlite.client.errors import ClientError

    try:
        report = run_audit(target.cluster(), topics, state_topic, query, target)
    except BadRecord as error:
        raise CannotRun(not_state(state_topic, error)) from None
    except ClientError as error:
        raise CannotRun(str(error)) from None
    if output == "json":
        found = {**{name: getattr(report, name) for name in ("queries", "decisions", "transactions", "visible", "aborted")}}
        print_json({"ok": report.ok, **found, "violations": report.violations, "found": [it._asdict() for it in report.found]})
    else:
        _show(report)
    sys.exit(OK if report.ok else VIOLATION)


def run_audit(cluster: ClusterClient, topics: Sequence[str], state_topic: str, query: str | None, target: Target) -> SinkReport:
    """`topics` empty: all that are not internal. Raises ClientError, BadRecord."""
    from kraftlite.audit.sink import audit_sink
    from kraftlite.client.errors import UnknownTopic

    known = cluster.topics(list(topics) or None)
    missing = [name for name in topics if name not in known]
    if missing:
        raise UnknownTopic(f"there is no topic {missing[0]}")
    wanted = list(topics) or [name for name, it in known.items() if not it.is_internal and name != state_topic]
    return audit_sink(reader(target), wanted, state_topic, query=query, lacking=_compacted(cluster, wanted))


def _compacted(cluster: ClusterClient, topics: Sequence[str]) -> bool:
    """Return whether older records of a topic may be gone without a trace in its log start."""
    from kraftlite.client.admin import describe_configs
    from kraftlite.model.messages.choices import ConfigResourceType

    policies = [
        str(entry.value)
        for topic in topics
        for entry in describe_configs(cluster, ConfigResourceType.TOPIC, topic)
        if entry.name == "cleanup.policy"
    ]
    return any("compact" in policy for policy in policies)


def _show(report: SinkReport) -> None:
    if report.found:
        print_table(
            ("FINDING", "QUERY", "BATCH", "TASK", "DETAIL"),
            [(it.kind, it.query, it.batch, it.task if it.task >= 0 else None, it.detail) for it in report.found[:_SHOWN]],
        )
    if len(report.found) > _SHOWN:
        click.echo(f"… and {len(report.found) - _SHOWN} more: --json has more of them")
    told = f"{report.visible:,} visible rows, {report.transactions:,} committed transactions of {report.decisions:,} decisions"
    hidden = f"{report.aborted:,} rows of aborted transactions are not visible"
    verdict = "OK" if report.ok else f"VIOLATED ({report.violations})"
    click.echo(f"{verdict}: {told}; {hidden}.")
