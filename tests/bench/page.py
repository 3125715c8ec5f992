"""What watching costs: the page on 1,000 partitions of three replicas, in a real browser, while clients write to all of them.

Needs playwright and a Chromium, as the tests of the page do. Browser, page, six nodes and a writer share the machine: on two
cores, tasks and memory of the tab and processor times say more than anything on the clock.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, Final

from kraftlite.ui import beside
from tests.bench.cluster import BenchCluster, cpu_s
from tests.bench.failover import create, produce_one

PARTITIONS: Final = 1_000
RECORDS_A_SECOND: Final = 1_000
WATCHED_S: Final = float(os.environ.get("KRAFTLITE_BENCH_WATCHED_S", "300"))
WITHOUT_S: Final = min(WATCHED_S, 60.0)
SETTLED_S: Final = 10.0
TRACED_S: Final = 60.0
TOPIC: Final = "orders"

_OBSERVE: Final = """() => {
    window.long = [];
    new PerformanceObserver(seen => { for (const it of seen.getEntries()) window.long.push(it.duration); })
        .observe({type: "longtask"});
}"""
_WAIT_FOR_WORDS: Final = """words => new Promise(done => {
    const look = () => document.body.textContent.includes(words) && done(Date.now());
    new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
    look();
})"""


class _Writer:
    """Small records to all partitions in turn, `RECORDS_A_SECOND` of them, acks=all, until the end of the block."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self.producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 2})
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Writer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        self.producer.flush(30)

    def _run(self) -> None:
        sent, began = 0, time.monotonic()
        while not self.over.wait(0.05):
            while sent < (time.monotonic() - began) * RECORDS_A_SECOND:
                self.producer.produce(TOPIC, b"a record of some bytes", partition=sent % PARTITIONS)
                sent += 1
            self.producer.poll(0)


def page() -> dict[str, Any]:
    """The page's own budget: no task above 50 ms, memory that does not grow, and brokers that hardly notice."""
    from tests.harness.browser import chromium

    with BenchCluster(controllers=3, brokers=3) as cluster, chromium() as browser:
        create(cluster.bootstrap, TOPIC, PARTITIONS, 3)
        produce_one(cluster.bootstrap, TOPIC)
        brokers = [node.pid for node in cluster.nodes() if "broker" in node.roles]
        with _Writer(cluster.bootstrap):
            time.sleep(SETTLED_S)
            without = _cores(brokers, WITHOUT_S)
            links = beside.start(cluster.data_dir)
            try:
                figures = _watched(browser, links["operator"], cluster, brokers)
            finally:
                beside.stop(cluster.data_dir)
        figures["brokers, not watched (cores)"] = round(without, 3)
        figures["brokers, watched (cores)"] = round(figures.pop("watched"), 3)
        return figures


def _watched(browser: Any, link: str, cluster: BenchCluster, brokers: list[int]) -> dict[str, Any]:
    server = beside.find(cluster.data_dir)
    assert server is not None
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(link)
    tab.wait_for_selector(".headlines li")
    painted = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1")
    tab.wait_for_selector(f"th a:text-is('{TOPIC}-0')")
    ready = tab.evaluate("performance.now()")
    time.sleep(SETTLED_S)
    cdp = context.new_cdp_session(tab)
    cdp.send("Performance.enable")
    tab.evaluate(_OBSERVE)
    heap, busy, used = _heap(cdp), _task_s(cdp), cpu_s(server.pid)
    watched = _cores(brokers, WATCHED_S)
    after = _heap(cdp)
    seen = tab.evaluate("window.long")
    worked = _work_of_tasks(tab, cdp, min(WATCHED_S, TRACED_S))
    figures = {
        "first paint (ms)": round(painted),
        "first rows (ms)": round(ready),
        "tasks above 50 ms": len(seen),
        "longest of them (ms)": round(max(seen, default=0)),
        "longest task by its own processor time (ms)": round(max(worked)),
        "main thread of the tab (share of a core)": round((_task_s(cdp) - busy) / WATCHED_S, 3),
        "heap of the tab (MB)": round(heap / 1e6, 1),
        "its growth (MB)": round((after - heap) / 1e6, 1),
        "server of the page (cores)": round((cpu_s(server.pid) - used) / WATCHED_S, 3),
        "server of the page (MiB)": round(_rss_mib(server.pid)),
        "watched": watched,
    }
    figures["killed broker to the words on the page (ms)"] = _kill_to_words(tab, cluster)
    context.close()
    return figures


def _work_of_tasks(tab: Any, cdp: Any, for_s: float) -> list[float]:
    """The processor times of the tasks of the tab's main thread in ms, as Chromium traces them. On the clock a task also takes
    what nodes, page and writer took of the cores meanwhile; this is its own part."""
    seen: list[dict[str, Any]] = []
    over: list[object] = []
    cdp.on("Tracing.dataCollected", lambda told: seen.extend(told["value"]))
    cdp.on("Tracing.tracingComplete", lambda told: over.append(told))
    cdp.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": {"includedCategories": ["toplevel"]}})
    time.sleep(for_s)
    cdp.send("Tracing.end")
    until = time.monotonic() + 60
    while not over:
        if time.monotonic() > until:
            raise TimeoutError("the browser did not give its trace within 60 s")
        tab.wait_for_timeout(100)
    named = {(it["pid"], it["tid"]): it["args"]["name"] for it in seen if it["name"] == "thread_name"}
    tasks = (it for it in seen if it["name"] == "ThreadControllerImpl::RunTask" and "tdur" in it)
    return [it["tdur"] / 1000 for it in tasks if named.get((it["pid"], it["tid"])) == "CrRendererMain"]


def _kill_to_words(tab: Any, cluster: BenchCluster) -> int:
    victim = next(node for node in cluster.nodes() if "broker" in node.roles)
    tab.evaluate(f"words => {{ window.shown = ({_WAIT_FOR_WORDS})(words); }}", f"broker {victim.node_id} has no process")
    os.kill(victim.pid, 9)
    killed = time.time()
    shown: float = tab.evaluate("window.shown")
    return round(shown - killed * 1000)


def _cores(pids: list[int], for_s: float) -> float:
    """What these processes use together, in cores."""
    before, began = sum(map(cpu_s, pids)), time.monotonic()
    time.sleep(for_s)
    return (sum(map(cpu_s, pids)) - before) / (time.monotonic() - began)


def _heap(cdp: Any) -> float:
    cdp.send("HeapProfiler.collectGarbage")
    return float(cdp.send("Runtime.getHeapUsage")["usedSize"])


def _task_s(cdp: Any) -> float:
    return next(float(it["value"]) for it in cdp.send("Performance.getMetrics")["metrics"] if it["name"] == "TaskDuration")


def _rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
