"""kafka-dump-log. Source: TO-23, TO-24; Kafka's DumpLogSegments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, whole

_DECODERS = ("cluster-metadata-decoder", "offsets-decoder", "transaction-log-decoder", "share-group-state-decoder")
_INDEXES = (".index", ".timeindex")
_KNOWN_DECODERS = ("kafka.serializer.StringDecoder", "org.apache.kafka.tools.api.StringDecoder")


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "kafka-dump-log",
        "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly corrupt log "
        "segment.",
    )
    parser.add_argument("--files", metavar="FILE,…")
    for name in ("print-data-log", "deep-iteration", "index-sanity-check", "verify-index-only", "skip-record-metadata"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in _DECODERS:
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("max-message-size", "max-bytes"):
        parser.add_argument(f"--{name}", type=whole(32))
    for name in ("key-decoder-class", "value-decoder-class"):
        parser.add_argument(f"--{name}", nargs="?", const=_KNOWN_DECODERS[-1])
    options = parser.read(arguments)
    if not options.files:
        raise UsageError('Missing required argument "[files]"')
    for name in ("key_decoder_class", "value_decoder_class"):
        value = getattr(options, name)
        if value is not None and value not in _KNOWN_DECODERS:
            raise ToolError(f"--{name.replace('_', '-')} {value} is not supported; allowed is {_KNOWN_DECODERS[-1]}")
    if options.share_group_state_decoder:
        raise ToolError("--share-group-state-decoder is not supported: there are no share groups")
    from kraftlite.cli.dump import SUFFIXES, dump_file
    from kraftlite.cli.dump_plain import NAMES
    from kraftlite.cli.dump_report import Report

    decoded = any(getattr(options, name.replace("-", "_")) for name in (*_DECODERS, "key-decoder-class", "value-decoder-class"))
    contents = options.print_data_log or decoded
    report = Report(
        as_json=False,
        batches_only=not (contents or options.deep_iteration),
        contents=contents,
        metadata=not options.skip_record_metadata,
        entries=not (options.verify_index_only or options.index_sanity_check),
    )
    for item in options.files.split(","):
        path = Path(item.strip())
        if not path.exists():
            raise ToolError(f"{path}: No such file or directory")
        if path.suffix not in SUFFIXES and path.name not in NAMES:
            click.echo(f"Dumping {path}")
            click.echo(f"Ignoring unknown file {path}", err=True)
            continue
        before = report.damage
        dump_file(
            path,
            report,
            options.max_bytes,
            metadata=options.cluster_metadata_decoder,
            transactions=options.transaction_log_decoder,
            offsets=options.offsets_decoder and not options.transaction_log_decoder,
        )
        if options.index_sanity_check and path.suffix in _INDEXES and path.stat().st_size and report.damage == before:
            click.echo(f"{path} passed sanity check.")
    return 0
