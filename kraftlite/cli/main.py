"""Entry point of `kraftlite`: the table of commands, and how errors end.

A command's module is imported when the command runs (or its own `--help` is asked for); the table here has the short helps.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from importlib import import_module
from typing import NoReturn

import click

from kraftlite import __version__, require_assertions
from kraftlite.cli import ending

DEBUG_VARIABLE = "KRAFTLITE_DEBUG"


class LazyGroup(click.Group):
    """A group whose commands are (module, attribute, short help)."""

    def __init__(self, name: str, doc: str, table: dict[str, tuple[str, str, str]]) -> None:
        super().__init__(name=name, help=doc, context_settings={"help_option_names": ["-h", "--help"]})
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module, attribute, _ = entry
        command = getattr(import_module(f"kraftlite.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.table and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r}; allowed is one of {', '.join(self.table)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, _, short) in self.table.items()])


_TOPIC = LazyGroup(
    "topic",
    "List, describe, change and delete topics.",
    {
        "list": ("topics", "list_topics_command", "Names of all topics."),
        "describe": ("topics", "describe", "Partitions, leaders, replicas and ISRs."),
        "create": ("topics", "create_topic", "Create a topic."),
        "alter": ("topics", "alter_topic", "Add partitions."),
        "delete": ("topics", "delete_topic", "Delete topics."),
    },
)
_GROUP = LazyGroup(
    "group",
    "Consumer groups: where they stand, who is in them.",
    {
        "list": ("groups", "list_groups_command", "Names of all groups."),
        "describe": ("groups", "describe", "Positions and lag, members, or state."),
        "delete": ("groups", "delete", "Delete groups without members."),
        "reset-offsets": ("group_reset", "reset_offsets", "Set the committed offsets of groups without members."),
        "delete-offsets": ("groups", "delete_offsets", "Delete offsets for topics that a group does not read."),
    },
)
_CONFIG = LazyGroup(
    "config",
    "Dynamic configurations of topics and brokers, and a node's own configuration.",
    {
        "describe": ("configs", "describe_config", "Values and where they come from."),
        "alter": ("configs", "alter_config", "Set and remove values."),
        "explain": ("nodes", "explain", "Where each value of a node's configuration came from."),
        "keys": ("nodes", "config_keys", "What each configuration key of Apache Kafka does here."),
    },
)
_STORAGE = LazyGroup(
    "storage",
    "The directories of a node.",
    {
        "info": ("nodes", "storage_info", "What the directories contain."),
        "format": ("nodes", "format_storage", "Prepare the directories for their first start."),
        "random-uuid": ("nodes", "random_uuid", "Print a new cluster id."),
    },
)
_QUORUM = LazyGroup(
    "quorum",
    "The quorum of controllers.",
    {
        "describe": ("quorum", "describe_quorum", "Leader, voters, observers and lag."),
        "add": ("voters", "quorum_add", "Add a controller to the voters."),
        "remove": ("voters", "quorum_remove", "Remove a controller from the voters."),
    },
)
_CLUSTER = LazyGroup(
    "cluster", "The cluster as a whole.", {"describe": ("clusters", "describe_cluster", "Cluster id, controller and brokers.")}
)
_RECORDS = LazyGroup("records", "Records.", {"delete": ("records", "delete_records", "Delete the oldest records of partitions.")})
_METADATA = LazyGroup(
    "metadata",
    "The metadata of a cluster, from the files of its nodes.",
    {"shell": ("metadata", "shell", "Its metadata as directories and files, at any offset.")},
)
_LOG = LazyGroup("log", "Log files.", {"dump": ("dump", "dump", "Print data, metadata, snapshot and index files, decoded.")})
_LOG_DIRS = LazyGroup(
    "log-dirs",
    "The log directories of the brokers.",
    {
        "describe": ("log_dirs", "describe_log_dirs_command", "Size, free space, and the replicas in them."),
        "move": ("log_dirs", "move_replicas", "Move replicas into another directory of their broker."),
    },
)
_FEATURE = LazyGroup(
    "feature",
    "The features of the cluster and their levels.",
    {
        "describe": ("features", "describe_features", "What is supported and what is finalized."),
        "upgrade": ("features", "upgrade_features", "Finalize at higher levels."),
        "downgrade": ("features", "downgrade_features", "Finalize at lower levels."),
        "disable": ("features", "disable_features", "Finalize no more."),
    },
)
_CLIENT_METRICS = LazyGroup(
    "client-metrics",
    "Subscriptions of client metrics: which clients push what of their metrics, and how often.",
    {
        "list": ("client_metrics", "list_command", "Names of all subscriptions."),
        "describe": ("client_metrics", "describe_command", "Their metrics, intervals and matches."),
        "alter": ("client_metrics", "alter_command", "Create or change one."),
        "delete": ("client_metrics", "delete_command", "Delete one."),
        "show": ("client_metrics", "show_command", "The clients that push, and what."),
    },
)
_METRICS = LazyGroup(
    "metrics",
    "The metrics page of a node.",
    {"list": ("metrics_list", "list_series", "Every series that it can have.")},
)
_PIPELINE = LazyGroup(
    "pipeline",
    "The data pipeline on Spark: pip install 'kraftlite[spark]'.",
    {
        "ingest": ("pipeline", "ingest", "Topics to Parquet by day, exactly once."),
        "aggregate": ("pipeline", "aggregate", "Windows of event time, to a topic and to Parquet."),
        "backfill": ("pipeline", "backfill", "A range of offsets or of time to Parquet."),
        "audit": ("pipeline_audit", "audit_command", "Verify the segment files of every replica."),
        "failover-report": ("pipeline_failover", "failover_report_command", "What each failure cost: table, Parquet, page."),
        "demo": ("pipeline_demo", "demo_command", "All of it, while a broker and the controller are killed."),
    },
)
_TRANSACTIONS = LazyGroup(
    "transactions",
    "Transactions: who has one open, which hang, and how they are ended.",
    {
        "list": ("transactions", "list_command", "Transactional ids, their states and coordinators."),
        "describe": ("transactions", "describe_command", "State, producer, age, partitions."),
        "describe-producers": (
            "transactions",
            "producers_command",
            "Who wrote to a partition, and has a transaction open there.",
        ),
        "find-hanging": ("transactions", "find_hanging_command", "Open transactions that no coordinator will end."),
        "abort": ("transactions", "abort_command", "Abort a transaction in one partition."),
        "fence": ("transactions", "fence_command", "Take a transactional id away from its producer."),
    },
)
_SINK = LazyGroup(
    "sink",
    "Spark queries that write exactly once: what they decided, and what they have open.",
    {
        "list": ("sink", "list_command", "Queries, their newest batches, and what is open."),
        "describe": ("sink", "describe_command", "The newest decision of a query, task by task."),
        "finish": ("sink", "finish_command", "Commit what was decided and is open yet."),
        "abort": ("sink", "abort_command", "Abort what a query that is gone has open."),
        "audit": ("sink_audit", "audit_command", "Every visible row of topics against the decisions."),
    },
)
_REASSIGN = LazyGroup(
    "reassign",
    "Move partitions to other brokers.",
    {
        "list": ("reassign", "list_command", "What is under way."),
        "start": ("reassign", "start_command", "Give partitions other replicas."),
        "cancel": ("reassign", "cancel_command", "Back to the replicas before the move."),
    },
)
_ACL = LazyGroup(
    "acl",
    "Access control: who may do what.",
    {
        "add": ("acls", "add_command", "Allow or deny principals an operation on resources."),
        "list": ("acls", "list_command", "The access control entries."),
        "delete": ("acls", "delete_command", "Remove access control entries."),
        "test": ("acls", "test_command", "Whether something is allowed, by which rule, and why."),
    },
)
_QUOTA = LazyGroup(
    "quota",
    "Client quotas: stored and described, not applied.",
    {
        "describe": ("quotas", "describe_command", "The quotas of users, client ids and addresses."),
        "alter": ("quotas", "alter_command", "Set and remove quotas."),
    },
)


_FAULT = LazyGroup(
    "fault",
    "Faults of running nodes of the local cluster, which must allow them: kraftlite up --faults. Each ends after --for, at most "
    "10m; without --for it lasts until Ctrl-C. Who did what is in the ledger: kraftlite explain.",
    {
        "list": ("faults", "list_command", "The faults that the nodes have now."),
        "end": ("faults", "end_command", "End faults, or all of them."),
        "cut": ("faults", "cut_command", "Cut a node off from another one, or from its clients."),
        "refuse": ("faults", "refuse_command", "Refuse connections between two nodes, or of clients."),
        "slow": ("faults", "slow_command", "Delay every message between two nodes."),
        "lossy": ("faults", "lossy_command", "Lose some of the messages between two nodes."),
        "disk": ("faults", "disk_command", "A disk that is slow, stalls, is full, or fails."),
        "clock": ("faults", "clock_command", "Let a node's wall clock jump."),
        "api": ("faults", "api_command", "Let brokers answer an API with an error, or late."),
        "kill": ("local_nodes", "kill", "Kill a node (SIGKILL) or tell it to stop (TERM)."),
        "pause": ("local_nodes", "pause", "Stop a node's clock (SIGSTOP)."),
        "resume": ("local_nodes", "resume", "Let a paused node go on."),
        "restart": ("local_nodes", "restart", "Start a node again, stopping it first if it runs."),
    },
)
_USER = LazyGroup(
    "user",
    "Users that log in with SCRAM.",
    {
        "list": ("users", "list_users", "The users that have credentials."),
        "add": ("users", "add", "Add a user, with a new password or a given one."),
        "rotate": ("users", "rotate", "Give a user a new password."),
        "delete": ("users", "delete", "Delete a user's credentials."),
        "export": ("users", "export", "Client files for another place, as a tar."),
    },
)
_CERTS = LazyGroup(
    "certs",
    "The certificates of a secure local cluster.",
    {
        "show": ("users", "show", "Whose there are, and until when they hold."),
        "rotate": ("users", "rotate_certificates", "Give every node a new one."),
        "revoke": ("users", "revoke_certificates", "Take back those of users or nodes, at once."),
    },
)


COMMANDS: dict[str, tuple[str, str, str]] = {
    "up": ("local_nodes", "up", "Start a local cluster of real processes."),
    "ui": ("ui", "ui", "The page on which a failover is watched, with a button for each fault."),
    "record": ("recordings", "record_command", "Record what the nodes of the local cluster say, for the page to show later."),
    "ps": ("local_nodes", "ps", "The nodes of the local cluster."),
    "kill": ("local_nodes", "kill", "Kill a node (SIGKILL) or tell it to stop (TERM)."),
    "pause": ("local_nodes", "pause", "Stop a node's clock (SIGSTOP)."),
    "resume": ("local_nodes", "resume", "Let a paused node go on."),
    "restart": ("local_nodes", "restart", "Start a node again, stopping it first if it runs."),
    "down": ("local_nodes", "down", "Stop the local cluster."),
    "add-broker": ("growing", "add_broker", "Add a broker to the local cluster."),
    "add-controller": ("growing", "add_controller", "Add a controller to the local cluster, and to the voters."),
    "remove-broker": ("growing", "remove_broker", "Move everything off a broker of the local cluster, and remove it."),
    "remove-controller": ("growing", "remove_controller", "Remove a controller of the local cluster from the voters."),
    "fault": ("main", "_FAULT", "Cut links, slow disks, turn clocks, and fail requests of running nodes."),
    "create-topic": ("topics", "create_topic", "Create a topic."),
    "describe": ("topics", "describe", "Partitions, leaders, replicas and ISRs of topics."),
    "topic": ("main", "_TOPIC", "List, describe, alter and delete topics."),
    "explain": ("explain", "explain", "What happened to a partition, topic, node, controller or record, and why."),
    "logs": ("logs", "logs", "What all nodes of the local cluster recorded, by time and by cause."),
    "produce": ("produce", "produce", "Write records from standard input or a file."),
    "consume": ("consume", "consume", "Print records."),
    "offsets": ("offsets", "offsets", "First offset, HW and LEO of a topic's partitions."),
    "records": ("main", "_RECORDS", "Delete the oldest records of partitions."),
    "group": ("main", "_GROUP", "Consumer groups: describe, reset offsets, delete."),
    "transactions": ("main", "_TRANSACTIONS", "Transactions: list, describe, find what hangs, abort, fence."),
    "sink": ("main", "_SINK", "Spark queries that write exactly once: list, finish, abort, audit."),
    "config": ("main", "_CONFIG", "Describe and alter configurations."),
    "elect-leaders": ("clusters", "elect_leaders", "Elect preferred or unclean leaders."),
    "sim": ("sim", "sim", "Run one seed: a whole cluster and its faults on virtual time."),
    "swarm": ("swarm", "swarm_command", "Run thousands of seeds; shrink what fails."),
    "quorum": ("main", "_QUORUM", "The quorum of controllers."),
    "cluster": ("main", "_CLUSTER", "Cluster id, controller and brokers."),
    "log": ("main", "_LOG", "Print log files, decoded."),
    "metadata": ("main", "_METADATA", "The metadata as directories and files, at any offset: a shell."),
    "random-uuid": ("nodes", "random_uuid", "Print a new cluster id."),
    "format": ("nodes", "format_storage", "Prepare a node's directories for their first start."),
    "start": ("nodes", "start", "Run a node in the foreground."),
    "storage": ("main", "_STORAGE", "What a node's directories contain."),
    "log-dirs": ("main", "_LOG_DIRS", "The log directories of the brokers."),
    "feature": ("main", "_FEATURE", "Features: describe, upgrade, downgrade, disable."),
    "client-metrics": ("main", "_CLIENT_METRICS", "Subscriptions of client metrics."),
    "metrics": ("main", "_METRICS", "The series of a node's metrics page: names, types, labels."),
    "reassign": ("main", "_REASSIGN", "Move partitions to other brokers."),
    "user": ("main", "_USER", "Users that log in with SCRAM: add, rotate, delete."),
    "certs": ("main", "_CERTS", "The certificates of a secure local cluster: show, rotate, revoke."),
    "quota": ("main", "_QUOTA", "Client quotas: describe and alter."),
    "acl": ("main", "_ACL", "Access control: add, list, delete and test entries."),
    "pipeline": ("main", "_PIPELINE", "The data pipeline on Spark: ingest, aggregate, audit and more."),
    "compat": ("compat.command", "compat", "Kafka's own commands: kraftlite compat kafka-topics --list."),
}

cli = LazyGroup(
    "kraftlite",
    "A Kafka cluster whose failures are real, repeatable and visible.\n\n"
    "Try: kraftlite up --detach; kraftlite create-topic demo --partitions 3 --replication-factor 3; kraftlite describe demo",
    COMMANDS,
)


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    click.echo(f"kraftlite {__version__}")
    from kraftlite.log.scan import IMPLEMENTATION

    where = "C" if IMPLEMENTATION == "c" else "Python: no compiler was there at the install"
    click.echo(f"record batches are checked in {where}")
    ctx.exit()


cli.params.append(
    click.Option(
        ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show the version."
    )
)


def main(args: list[str] | None = None) -> None:
    """Run and exit: 0, 1 on failure, 2 on wrong usage, 130 when interrupted, 143 when told to end. Errors are one line on
    standard error."""
    try:
        require_assertions()
    except ImportError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    ending.take_signals()
    try:
        status = cli.main(args=args, prog_name="kraftlite", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(error.exit_code)
    except click.UsageError as error:
        _say(error.format_message(), error.ctx.command_path if error.ctx is not None else None)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _say(error.format_message())
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _interrupted()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader is gone: no complaint while Python shuts down
        sys.exit(1)
    except UnicodeEncodeError as error:  # an argument that is not UTF-8, or a terminal that cannot show a name
        _say(f"{error.object[:80]!a} is no text in {error.encoding}")
        sys.exit(2)
    except Exception as error:  # the last line of the program: whatever it is, it becomes one line
        if os.environ.get(DEBUG_VARIABLE):
            raise
        if _is_expected(error):
            _say(str(error))
            sys.exit(1)
        if isinstance(error, ValueError) and (found := _TOO_LONG.match(str(error))) is not None:
            _say(f"a number has {found[1]} digits: allowed are at most 19")
            sys.exit(2)
        if isinstance(error, SystemError) and ending.was_interrupted():
            _interrupted()  # raised in a callback of librdkafka, whose binding has lost the exception
        _say(f"{type(error).__name__}: {error} (set {DEBUG_VARIABLE}=1 for more)".replace("\n", " "))
        sys.exit(1)
    kafkas_own = (sys.argv[1:] if args is None else args)[:1] == ["compat"]
    sys.exit(ending.status_of(status if isinstance(status, int) else 0, until_interrupted=not kafkas_own))


def _interrupted() -> NoReturn:
    with contextlib.suppress(OSError):  # of a terminal that has hung up
        click.echo("interrupted", err=True)
    sys.exit(ending.status_of(130, until_interrupted=False))


_TOO_LONG = re.compile(r"Exceeds the limit \(\d+ digits\) for integer string conversion: value has (\d+) digits")
"""Python's own words, of which there is no class."""


def _is_expected(error: Exception) -> bool:
    """An error whose message is already for the user: its module is loaded when there is one."""
    kinds = (("kraftlite.local.state", "LocalError"), ("kraftlite.client.errors", "ClientError"))
    return any((module := sys.modules.get(name)) is not None and isinstance(error, getattr(module, kind)) for name, kind in kinds)


def _say(message: str, usage_of: str | None = None) -> None:
    from kraftlite.model.shown import printable

    hint = f" (see {usage_of} --help)" if usage_of else ""
    message = message.replace("\n\t", " ")  # the choices of click, one a line
    shown = "\n".join(printable(line) for line in message.split("\n"))
    click.echo(f"error: {shown}{hint}", err=True)


if __name__ == "__main__":
    main()
