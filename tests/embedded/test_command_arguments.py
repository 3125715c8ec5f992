"""Odd arguments of commands that reach a broker."""

from __future__ import annotations

import pytest

from kraftlite.cli.main import main
from tests.harness.embedded import embedded

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]


def test_what_is_no_text_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments may have any bytes; those that are not UTF-8 fit into no request."""
    with embedded(controllers=1, brokers=1) as cluster, pytest.raises(SystemExit) as ended:
        main(["consume", "caf\udce9", "-b", cluster.bootstrap])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: 'caf\\udce9' is no text in utf-8\n"
