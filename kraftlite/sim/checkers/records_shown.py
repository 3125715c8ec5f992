"""`kraftlite log dump` shows of the metadata log what nodes have written, and a record that lacks its end is refused as damage
(ML-02)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlite.log.batch import iter_records
from kraftlite.metadata.codec import as_json
from kraftlite.metadata.kafka_records.layout import SAME, Layout
from kraftlite.metadata.kafka_records.table import LAYOUTS
from kraftlite.metadata.records import MetadataRecord
from kraftlite.model.errors import Fault
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry

_BY_TYPE: Final[Mapping[type[Any], Layout]] = {it.made: it for it in LAYOUTS.values()}
_CUT_ONE_IN: Final = 8


class RecordsShown(MetadataChecker):
    """Each committed record is read field by field, as the tool does it, and compared with the record that the nodes replay."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.judged = 0

    def on_record(self, entry: Entry, offset: int, record: MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        value = next((it.value for it in iter_records(entry.raw) if entry.base_offset + it.offset_delta == offset), None)
        assert value is not None, f"the metadata log has no record at {offset}"
        self.judged += 1
        layout, shown = _BY_TYPE[type(record)], as_json(value)
        if shown["type"] != layout.shown:
            self.fail(f"{record} at offset {offset} is shown as a {shown['type']}")
        for field in layout.fields_of(shown["version"]):
            mine = getattr(record, field.attribute, None)
            if field.meaning is not SAME or type(mine) not in (int, str) or field.name not in shown["data"]:
                continue
            if shown["data"][field.name] != mine:
                self.fail(f"{record} at offset {offset} is shown with {field.name} {shown['data'][field.name]!r}")
        if offset % _CUT_ONE_IN == 0:
            self._cut(record, offset, value)

    def _cut(self, record: MetadataRecord, offset: int, value: bytes) -> None:
        try:
            found = self.facts.serde.decode(value[:-1])
        except Fault as error:
            if "it ends too early" in str(error):
                return
            self.fail(f"{record} at offset {offset} without its last byte is refused with: {error}")
        else:
            self.fail(f"{record} at offset {offset} without its last byte is read as {found}")
