"""`pytest --file-times=N` shows where the time of a run goes."""

from __future__ import annotations

import re

import pytest


@pytest.mark.parametrize("workers", ["0", "1"])
def test_the_files_that_took_longest(pytester: pytest.Pytester, workers: str) -> None:
    pytester.makepyfile(
        test_busy="""
        import time

        def test_busy():
            begin = time.process_time()
            while time.process_time() < begin + 0.3:
                pass

        def test_waiting():
            time.sleep(0.5)
        """,
        test_quick="def test_quick(): pass",
    )
    done = pytester.runpytest("-p", "tests.harness.file_times", "--file-times=1", "-n", workers)
    done.assert_outcomes(passed=3)
    busy, total = (line.split() for line in done.outlines if re.search(r" (test_busy\.py|all)$", line))
    assert busy[-2:] == ["2", "test_busy.py"] and total[-2:] == ["3", "all"]
    assert float(busy[0]) >= 0.8 and float(busy[3]) >= 0.8, "the clock counts what waits"
    assert float(busy[1]) >= 0.3, "and the processor what is busy"
    assert not [line for line in done.outlines if line.endswith(" test_quick.py")], "only one file was asked for"
