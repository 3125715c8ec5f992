"""log dump: what is in log, index, snapshot and checkpoint files, in the layout of kafka-dump-log (TO-23, TO-24)."""

from __future__ import annotations

import json
import mmap
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from kraftlite.cli import dump_plain
from kraftlite.cli.common import output_option
from kraftlite.cli.dump_controls import in_kafkas_words
from kraftlite.cli.dump_report import Report
from kraftlite.cli.offset_records import dumped_offset
from kraftlite.cli.render import control_as_json, text_of
from kraftlite.cli.transaction_records import DIRECTORY_PREFIX, dumped
from kraftlite.log.batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    check_crc,
    iter_records,
    parse_header,
    record_timestamp,
)
from kraftlite.log.control import ControlType, control_type, decode_control
from kraftlite.model.errors import ApiError, Fault

SUFFIXES = (".log", ".checkpoint", ".index", ".timeindex", ".txnindex", ".snapshot")
_LOG_FILE = re.compile(r"\d{20}(\.log|\.index|\.timeindex|\.txnindex|\.snapshot|-\d{10}\.checkpoint)|bootstrap\.checkpoint")
_CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_OLDEST_BYTES = 26
"""The least that a batch of magic 0 has: an offset, a length, and a message without key and value."""
_METADATA_PREFIX = "__cluster_metadata-"


@click.command("dump")
@click.argument("path", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FILE|DIR…")
@click.option("--batches-only", is_flag=True, help="Without the records inside the batches.")
@click.option("--max-bytes", type=click.IntRange(1), metavar="N", help="Read only so much of each log file.")
@output_option
def dump(path: tuple[Path, ...], batches_only: bool, max_bytes: int | None, output: str) -> None:
    """Print log, metadata, snapshot and index files, decoded, and report damage; exit status 1 if there is any.

    Of a directory, every such file in it and below: a partition, a node's log directory, a local cluster. With -o json one
    object per line.
    """
    report = Report(as_json=output == "json", batches_only=batches_only)
    files = [file for given in path for file in _files(given)]
    if not files:
        raise click.ClickException(f"{path[0]} has no log files; known are {', '.join(SUFFIXES)}")
    for file in files:
        try:
            transactions = file.absolute().parent.name.startswith(DIRECTORY_PREFIX)
            dump_file(file, report, max_bytes, transactions=transactions)
        except BrokenPipeError:
            raise
        except OSError as error:
            report.problem(f"{file}: {error.strerror or error}")
    if report.damage:
        click.echo(f"{report.damage} problem{'s' if report.damage > 1 else ''} found", err=True)
        sys.exit(1)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if path.suffix not in SUFFIXES and path.name not in dump_plain.NAMES:
            raise click.ClickException(f"{path} is not a file of a log; known are {', '.join((*SUFFIXES, *dump_plain.NAMES))}")
        return [path]
    return sorted(file for file in path.rglob("*") if _LOG_FILE.fullmatch(file.name) or file.name in dump_plain.NAMES)


def dump_file(
    path: Path,
    report: Report,
    max_bytes: int | None,
    *,
    metadata: bool = False,
    transactions: bool = False,
    offsets: bool = False,
) -> None:
    """Print one file. `metadata`: its records are those of the metadata log, as where its directory says so; `transactions`: of
    `__transaction_state`; `offsets`: of `__consumer_offsets`. Raises OSError."""
    if path.suffix == ".log":
        base = int(path.stem) if path.stem.isdigit() else 0
        report.file(path, start_offset=base)
        metadata = metadata or path.absolute().parent.name.startswith(_METADATA_PREFIX)
        _dump_batches(path, report, max_bytes, _decoder(metadata=metadata, transactions=transactions, offsets=offsets))
    elif path.suffix == ".checkpoint":
        end, _, epoch = path.stem.partition("-")
        facts = {"snapshot_end_offset": int(end), "snapshot_epoch": int(epoch)} if end.isdigit() and epoch.isdigit() else {}
        report.file(path, **facts)
        _dump_batches(path, report, max_bytes, _decoder(metadata=True))
    elif path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        from kraftlite.cli import dump_index

        report.file(path)
        dump_index.dump(path, report)
    else:
        dump_plain.dump(path, report)


Decoder = Callable[[Any, int], tuple[dict[str, Any], str]]
"""The content of a data record at an offset, for JSON and as text. Raises ApiError or Fault."""


def _decoder(*, metadata: bool = False, transactions: bool = False, offsets: bool = False) -> Decoder:
    if metadata:
        return lambda record, offset: _metadata_record(record)
    if transactions:
        return lambda record, offset: dumped(record.key, record.value, offset)
    if offsets:
        return lambda record, offset: dumped_offset(record.key, record.value, offset)
    return lambda record, offset: _plain_record(record)


def _dump_batches(path: Path, report: Report, max_bytes: int | None, decoder: Decoder) -> None:
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        # Not closed by hand: it goes when the last view of it does, whatever way this ends.
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    expected: int | None = None
    for position, header in _walk(view, path, report, max_bytes):
        batch = view[position : position + header.size_bytes]
        valid = check_crc(batch, header)
        if expected is not None and header.base_offset < expected:
            report.problem(
                f"Found non-consecutive offsets in {path}: {header.base_offset} at position {position} follows {expected - 1}"
            )
        expected = header.next_offset
        _print_batch(header, position, valid, report)
        if header.magic != MAGIC:
            report.problem(
                f"Found a batch with the unknown magic {header.magic} in {path} at position {position}, "
                f"offset {header.base_offset}"
            )
        if not valid:
            report.problem(f"Found a batch with a wrong CRC in {path} at position {position}, offset {header.base_offset}")
        elif not report.batches_only:
            _print_records(batch, header, report, decoder)


def _walk(view: memoryview, path: Path, report: Report, max_bytes: int | None) -> Iterator[tuple[int, BatchHeader]]:
    """Batches up to the end, or up to where none begins any more, which is damage. One of a later magic, which this may be or
    have been flipped to, has a length all the same."""
    position, end = 0, len(view)
    while position < end and (max_bytes is None or position < max_bytes):
        header = parse_header(view, position) if end - position >= HEADER_BYTES else None
        if header is not None and 0 <= header.magic < MAGIC and _OLDEST_BYTES <= header.size_bytes <= end - position:
            if max_bytes is not None and position + header.size_bytes > max_bytes:
                return
            report.problem(f"Found a batch of an older format, magic {header.magic}, in {path} at position {position}")
            position += header.size_bytes
            continue
        if header is None or header.size_bytes < HEADER_BYTES or header.magic < MAGIC or position + header.size_bytes > end:
            if not any(view[position:]):
                report.line(f"{end - position} zero bytes at the end (preallocated)", {"zero_bytes": end - position})
            else:
                report.problem(f"Found {end - position} invalid bytes at the end of {path.name}, from position {position}")
            return
        if max_bytes is not None and position + header.size_bytes > max_bytes:
            return
        yield position, header
        position += header.size_bytes


def _print_batch(header: BatchHeader, position: int, valid: bool, report: Report) -> None:
    horizon = str(header.base_timestamp) if header.has_delete_horizon else None
    facts: dict[str, Any] = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": horizon,
        "position": position,
        header.timestamp_type: header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": _CODECS.get(header.codec, f"unknown({header.codec})"),
        "crc": header.crc,
        "isvalid": valid,
    }
    shown = {**facts, "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]"}
    report.line(" ".join(f"{key}: {_plain(value)}" for key, value in shown.items()), facts)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print_records(batch: memoryview, header: BatchHeader, report: Report, decoder: Decoder) -> None:
    try:
        for record in iter_records(batch):
            offset = header.base_offset + record.offset_delta
            sequence = -1 if header.base_sequence < 0 else (header.base_sequence + record.offset_delta) & 0x7FFFFFFF
            facts: dict[str, Any] = {
                "offset": offset,
                header.timestamp_type: record_timestamp(header, record),
                "keySize": -1 if record.key is None else len(record.key),
                "valueSize": -1 if record.value is None else len(record.value),
                "sequence": sequence,
                "headerKeys": [
                    name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") for name, _ in record.headers
                ],
            }
            text = "| " + " ".join(f"{key}: {value if key != 'headerKeys' else _keys(value)}" for key, value in facts.items())
            problem = None
            try:
                content, rest = _control_record(record) if header.is_control else decoder(record, offset)
            except (ApiError, Fault) as error:
                content, rest, problem = {}, "", error
            if not (report.contents or header.is_control):
                rest = ""
            if not report.metadata:
                text, rest = ("", "") if header.is_control or not report.contents else ("|", rest)
            report.line(text + rest, {**facts, **content})
            if problem is not None:
                report.problem(f"Found a record that does not decode at offset {offset}: {problem}")
    except (ApiError, Fault) as error:
        report.problem(f"Found records that do not decode at offset {header.base_offset}: {error}")


def _keys(names: list[str]) -> str:
    return f"[{','.join(names)}]"


def _control_record(record: Any) -> tuple[dict[str, Any], str]:
    kind = control_type(record.key)
    decoded = decode_control(record)
    name = ControlType(kind).name if kind in ControlType._value2member_map_ else f"UNKNOWN({kind})"
    value = {} if decoded is None else control_as_json(decoded)
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return {"control": name, "data": value}, f" endTxnMarker: {name} coordinatorEpoch: {value['coordinator_epoch']}"
    return {"control": name, "data": value}, f" {name} {json.dumps(value)}" if decoded is None else in_kafkas_words(decoded)


def _metadata_record(record: Any) -> tuple[dict[str, Any], str]:
    from kraftlite.metadata.codec import as_json

    decoded = as_json(record.value or b"")
    return {"payload": decoded}, f" payload: {json.dumps(decoded, ensure_ascii=False, separators=(',', ':'))}"


def _plain_record(record: Any) -> tuple[dict[str, Any], str]:
    key, value_text = text_of(record.key), text_of(record.value)
    rest = (f" key: {key}" if record.key is not None else "") + (f" payload: {value_text}" if record.value is not None else "")
    return {"key": key, "payload": value_text}, rest
