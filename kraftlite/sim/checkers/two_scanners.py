"""The scanner in Python and the compiled one come to one verdict on every batch that a client sends (LG-10)."""

from __future__ import annotations

from typing import Final

from kraftlite.log import scan
from kraftlite.log.config import LogConfig
from kraftlite.log.validation import BatchCheck, Verdict, check_batch
from kraftlite.model.errors import ApiError
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.checkers.log_files import running_log, wall_ms
from kraftlite.sim.service import PRODUCE, ProduceAsk
from kraftlite.simhost.network import AnyExchange

_ONE_IN: Final = 8


class TwoScanners(Checker):
    """The node has one of the two, and a cluster may have both. Looked at are the batches that are refused, most of which
    strangers send, and one of eight others."""

    only_methods = (PRODUCE,)
    only_events = ()
    other: type[scan.RecordScanner] = scan.PythonScanner

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen = 0
        self.judged = 0

    def on_arrival(self, exchange: AnyExchange) -> None:
        ask, node = exchange.request, self.world.nodes[exchange.target]
        if node.now is None or not isinstance(ask, ProduceAsk):
            return
        self._seen += 1
        log = running_log(node, ask.tp)
        self.judge(ask, LogConfig() if log is None else log.config, wall_ms(node))

    def judge(self, ask: ProduceAsk, config: LogConfig, now_ms: int) -> None:
        one = check_batch(ask.batch, config, now_ms)
        if one.refusal is None and self._seen % _ONE_IN:
            return
        self.judged += 1
        other = BatchCheck(ask.batch, config, now_ms, scanner=self.other).finish()
        if _told(one) != _told(other):
            self.fail(f"{ask.tp}: {ask.batch.hex()}: {scan.IMPLEMENTATION} says {_told(one)}, Python {_told(other)}")


def _told(it: Verdict) -> object:
    refusal = it.refusal
    if refusal is None:
        return it.header, it.max_timestamp, it.recompressed
    return (refusal.code, refusal.message) if isinstance(refusal, ApiError) else refusal
