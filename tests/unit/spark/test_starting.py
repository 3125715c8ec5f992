"""No JVM is left behind by who was interrupted while Spark started."""

from __future__ import annotations

import os
import subprocess

import pytest

from kraftlite.spark.starting import none_left_behind

started: list[int] = []


def launch(then: BaseException | None) -> subprocess.Popen[bytes]:
    """As pyspark does: who calls it has no hold of the process before it returns."""
    proc = subprocess.Popen(["sleep", "600"])
    started.append(proc.pid)
    if then is not None:
        raise then
    return proc


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), RuntimeError("no port")], ids=repr)
def test_a_process_that_nobody_has_a_hold_of_is_ended(error: BaseException) -> None:
    with pytest.raises(type(error)), none_left_behind():
        launch(error)
    with pytest.raises(ProcessLookupError):
        os.kill(started[-1], 0)


def test_a_start_that_succeeds_leaves_its_process() -> None:
    with none_left_behind():
        child = launch(None)
    try:
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
