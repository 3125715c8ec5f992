"""log dump of the small files beside a log: what is sound is printed, damage is counted, and no line commands the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftlite.cli.dump import dump as dump_command
from kraftlite.cli.dump_plain import NAMES

SOUND = {
    "leader-epoch-checkpoint": "0\n2\n1 0\n4 17\n",
    "partition.metadata": "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
    "quorum-state": '{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
    "meta.properties": "version=1\ncluster.id=chb3o_19RwCmNHlgXlAuZg\nnode.id=2\ndirectory.id=4BSE7GIMQtmrXlBOJOItBw\n",
    "recovery-point-offset-checkpoint": "0\n2\norders 0 5\norders 1 7\n",
    "replication-offset-checkpoint": "0\n0\n",
    "log-start-offset-checkpoint": "0\n1\norders 0 9223372036854775807\n",
    ".kafka_cleanshutdown": '{"version":0,"brokerEpoch":12}',
}
DAMAGED = {
    "leader-epoch-checkpoint": "0\n2\n4 17\n1 0\n",
    "partition.metadata": "version: 0\ntopic_id: short\n",
    "quorum-state": '{"leaderId":1,"leaderEpoch":-3,"votedId":-1,"data_version":0}',
    "meta.properties": "version=1\ncluster.id=\x1b[31m\nnode.id=2\ndirectory.id=x\n",
    "recovery-point-offset-checkpoint": "0\n2\norders 0 5\n",
    "replication-offset-checkpoint": "0\n1\norders 0 9223372036854775808\n",
    "log-start-offset-checkpoint": "7\n0\n",
    ".kafka_cleanshutdown": "{}",
}


def dump(*paths: Path) -> Result:
    return CliRunner().invoke(dump_command, [str(path) for path in paths])


def test_all_names_are_tried() -> None:
    assert set(SOUND) == set(DAMAGED) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_sound_is_printed(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(SOUND[name])
    said = dump(path)
    assert (said.exit_code, said.output) == (0, f"Dumping {path}\n{SOUND[name].rstrip()}\n")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["damaged", "random", "empty"])
def test_damage_is_counted_and_named(name: str, how: str, tmp_path: Path) -> None:
    path = tmp_path / name
    content = {"damaged": DAMAGED[name].encode(), "random": bytes(range(256)) * 4, "empty": b""}[how]
    path.write_bytes(content)
    said = dump(path)
    assert said.exit_code == 1 and said.output.endswith("\n1 problem found\n")
    assert str(path) in said.output.splitlines()[-2]
    assert all(line.isprintable() for line in said.output.splitlines())


def test_a_directory_in_the_place_of_a_file_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").mkdir()
    (tmp_path / "leader-epoch-checkpoint").symlink_to("leader-epoch-checkpoint")
    (tmp_path / "partition.metadata").write_text(SOUND["partition.metadata"])
    said = dump(tmp_path)
    assert said.exit_code == 1 and "topic_id: AAAAAAAAAAAAAAAAAAAAAQ" in said.output
    assert f"{tmp_path / '00000000000000000000.log'}: " in said.output
    assert f"{tmp_path / 'leader-epoch-checkpoint'}: Too many levels of symbolic links" in said.output
    assert "2 problems found" in said.output
