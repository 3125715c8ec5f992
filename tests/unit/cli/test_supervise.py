"""`kraftlite up` without --detach: how it ends when the nodes do."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import click
import pytest

from kraftlite.cli import local_nodes
from kraftlite.local.layout import plan, write_files
from kraftlite.local.state import LocalCluster, save


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """A cluster whose processes are gone."""
    monkeypatch.setitem(tempfile.__dict__, "tempdir", str(tmp_path))
    monkeypatch.setitem(local_nodes.__dict__, "_SETTLED_WITHIN_S", 0.3)
    (tmp_path / "cluster").mkdir()
    made = plan(tmp_path / "cluster", controllers=1, brokers=2, combined=False)
    write_files(made, {})
    made = replace(made, nodes=tuple(replace(node, pid=1 << 30, mark="another") for node in made.nodes))
    save(made)
    return made


def test_up_fails_when_all_nodes_crashed_and_names_their_logs(ended: LocalCluster) -> None:
    with pytest.raises(click.ClickException) as caught:
        local_nodes.supervise(Path(ended.data_dir))
    assert caught.value.exit_code == 1
    for node in ended.nodes:
        assert f"node {node.id}, whose log is {node.log_path}" in caught.value.message


def test_up_ends_well_when_the_cluster_was_stopped_from_elsewhere(
    ended: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    save(replace(ended, nodes=tuple(replace(node, pid=None, mark=None) for node in ended.nodes)))
    local_nodes.supervise(Path(ended.data_dir))
    assert "every node has ended" in capsys.readouterr().err
