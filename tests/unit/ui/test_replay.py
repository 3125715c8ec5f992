"""A recording as a tape: what its frames say is what the fold says, and the page in one file holds nothing but itself."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.cli.main import cli
from kraftlite.obs.explain_events import Recorded
from kraftlite.obs.faults import ASKED, OVERDUE_MS
from kraftlite.obs.recording_reader import read_bytes
from kraftlite.sim.recorded import notes
from kraftlite.ui.export import STATIC, bundle, html_of
from kraftlite.ui.replay import change, states, tape_of
from tests.harness.recordings import hostile, outage, split
from tests.harness.ui import ask


def applied(old: Any, made: Any) -> Any:
    """What the page's `changed` (static/tape.js) does."""
    if made is None:
        return old
    if isinstance(made, list):
        return made[0]
    if "i" in made:
        return [applied(it, made["i"].get(str(at))) for at, it in enumerate(old)]
    found = {name: it for name, it in old.items() if name not in made.get("x", [])}
    return found | {name: applied(old.get(name), inner) for name, inner in made["k"].items()}


_json = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=12,
)


@given(_json, _json)
def test_a_change_makes_the_next_value_of_the_one_before(old: Any, new: Any) -> None:
    assert applied(old, json.loads(json.dumps(change(old, new)))) == new
    assert change(new, new) is None


def test_the_frames_are_the_states() -> None:
    data, tape = split()
    value: Any = None
    for (ts, made), (at_ms, state) in zip(tape["frames"], states(read_bytes(data), []), strict=True):
        value = applied(value, made)
        assert ts == at_ms and value == json.loads(json.dumps(state))
    assert len(json.dumps(tape)) < 3 << 20


def test_a_fault_ends_with_its_time_though_nobody_says_so() -> None:
    """Its author and its node may have died before they could."""
    data, tape = split()
    first, last = tape["frames"][0][0], tape["frames"][-1][0]
    asked = Recorded(ms=first, node=4, event=ASKED, facts={"id": "f1", "kind": "cut", "for_ms": 1, "who": "me", "door": "cli"})
    active = [(ts, state["state"]["faults"][0]["active"]) for ts, state in states(read_bytes(data), [asked])]
    assert last > first + 1 + OVERDUE_MS, "the recording is long enough"
    assert active[0] == (first, True)
    assert active[-1] == (last, False)
    assert all(on is (ts < first + 1 + OVERDUE_MS) for ts, on in active)


def test_the_stories_of_a_tape_are_those_with_most_events() -> None:
    """Not those whose topics come first by name."""
    lines = list(read_bytes(split()[0]))
    at, told = next((at, it) for at, it in enumerate(lines) if isinstance(it, Recorded) and it.partition == "orders-1")
    tape = tape_of(lambda: [*lines[:at], told, *lines[at:]], max_subjects=1)
    assert tape["stories"].keys() == {"", "controller", "orders-1"}


def test_two_that_lead_at_once_are_on_the_tape() -> None:
    _, tape = split()
    leads = [span for span in tape["lanes"]["spans"] if span["lane"] == "quorum"]
    first, second = leads[0], leads[1]
    assert first["until"] - second["from"] == 999
    assert any(text.startswith("isolate 1") for _, text, _ in tape["notes"])
    assert any("1 → 2" in story["title"] for story in tape["stories"]["controller"])
    about = tape["cluster"]["recording"]
    assert (about["source"], about["clock"], about["outcome"]) == ("simulated", "virtual", "OK")


def test_what_a_client_was_told_is_in_each_moment_of_it() -> None:
    tape = outage()
    shown, last = dict[int, Any](), None
    for ts, made in tape["frames"]:
        shown[ts] = last = applied(last, made)
    words = {ts: it["state"]["clients"][0] for ts, it in shown.items()}
    assert [words[ts]["acked"] for ts in (1_000, 5_000)] == [1_000, 5_000]
    assert (words[5_000]["waits_ms"], words[8_000]["waits_ms"], words[8_000]["longest_ms"]) == (3_000, None, 3_500)
    lines = {ts: [it["text"] for it in state["state"]["headlines"]] for ts, state in shown.items()}
    assert "the client test has no acknowledgement from orders-0" in lines[5_000]
    assert not any("client" in it for it in lines[2_000] + lines[8_000])
    assert [(it["name"], it["from"], it["until"]) for it in tape["outages"]] == [("orders-0", 3_000, 6_500)]
    assert tape["lanes"]["lanes"][1] == "clients" and tape["cluster"]["recording"]["clients"] == 1
    assert [it["from"] for it in tape["lanes"]["spans"] if it["lane"] == "clients"] == [3_000]
    assert "orders-0" in html_of(tape)


def test_a_long_recording_has_fewer_frames_and_its_end() -> None:
    data, tape = split()
    shorter = tape_of(lambda: read_bytes(data), max_frames=40)
    assert len(shorter["frames"]) <= 41 and shorter["frames"][-1][0] == tape["frames"][-1][0]


def test_notes_do_not_outlast_the_end_of_all_faults() -> None:
    found = notes([(1_000_000, "isolate 1 for 3000 ms"), (2_000_000, "kill 4"), (3_000_000, "all faults end")])
    assert found == [(1000, "isolate 1 for 3000 ms", 3000), (2000, "kill 4", None), (3000, "all faults end", None)]


# --- the page in one file


_NODE = """
import { Heard, Tape } from "%s";
import { readFileSync } from "node:fs";
const tape = new Tape(JSON.parse(readFileSync(0)));
const heard = new Heard();
for (let n = 1; n <= 3000; n += 1) {
  if (n %% 10 === 1) heard.partitions(JSON.stringify({ n, text: "x".repeat(20000) }));
  heard.push(n * 1000, JSON.stringify({ n, text: "y".repeat(20000) }));
}
console.log(JSON.stringify({
  last: tape.at(tape.end), first: tape.at(-1), before: tape.beside(tape.end, -1), times: tape.times,
  kept: heard.times.length, ms: heard.end - heard.begin, chars: heard.chars, state: heard.at(heard.end).state.n,
  oldest: heard.at(0).state.n * 1000 === heard.begin, parts: heard.at(heard.end - 9000).partitions.n,
}));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_page_reads_the_tape_and_bounds_what_it_keeps() -> None:
    """The page's own code, without a browser: the last frame is the last state, and what is heard is kept up to a bound."""
    data, tape = split()
    script = _NODE % (STATIC / "tape.js").as_uri()
    told = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        input=json.dumps(tape["frames"]),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = json.loads(told.stdout)
    *_, (_, last) = states(read_bytes(data), [])
    assert found["last"] == json.loads(json.dumps(last)) and found["first"]["state"]["t"] == tape["frames"][0][0]
    assert found["before"] == tape["frames"][-2][0] and found["times"] == [ts for ts, _ in tape["frames"]]
    assert found["kept"] > 500 and found["ms"] <= 15 * 60_000 and found["chars"] <= 24 << 20
    assert found["state"] == 3000 and found["oldest"] and found["parts"] == 2991


def test_what_was_said_cannot_end_the_block_of_data() -> None:
    page = html_of(hostile())
    assert page.count("</script>") == 2 and page.count("<script") == 2 and "<img src=x" not in page
    inside = re.search(r'id="tape">(.*?)</script>', page, re.DOTALL)
    assert inside is not None and json.loads(inside[1])["cluster"]["recording"]["title"].startswith("</title>")


def test_the_policy_of_the_page_is_that_of_its_script_and_style() -> None:
    page = html_of(hostile())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None and policy[1].startswith("default-src 'none'; ")
    for tag in ("script", "style"):
        found = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert found is not None
        assert f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}'" in policy[1]
    assert not re.search(r'(?:src|href)="(?!#|data:)', page), "it asks for nothing"


def test_every_module_is_in_the_bundle() -> None:
    text = bundle()
    for path in STATIC.glob("*.js"):
        assert f'modules["{path.name}"] = ' in text
    assert len(text) < 120_000


# --- the commands


def test_the_commands(tmp_path: Path) -> None:
    recording, html, again = tmp_path / "r.kljsonl", tmp_path / "r.html", tmp_path / "again.html"
    run_cli = CliRunner().invoke
    told = run_cli(
        cli, ["sim", "--seed", "5", "--shape", "1+1", "--duration", "1", "--record", str(recording), "--html", str(html)]
    )
    assert told.exit_code == 0, told.output
    assert run_cli(cli, ["ui", str(recording), "--html", str(again)]).exit_code == 0
    assert again.read_text() == html.read_text()
    told = run_cli(cli, ["explain", "controller", "--trace", str(recording)])
    assert told.exit_code == 0 and "raft epoch 1" in told.output
    recording.write_bytes(recording.read_bytes().replace(b'"ts":', b'"tz":', 1))
    told = run_cli(cli, ["ui", str(recording), "--html", str(again)])
    assert told.exit_code == 1 and told.output == "Error: r.kljsonl line 2: it has no ts\n"
    assert "needs a recording" in run_cli(cli, ["ui", "--html", str(again)]).output
    told = run_cli(cli, ["sim", "--seed", "5", "--shape", "1+1", "--duration", "1", "--html", str(tmp_path / "no" / "x")])
    assert told.exit_code == 1 and "No such file or directory" in told.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["FILE", "--nodes", "a:1"], "FILE is a recording: one of them"),
        (["--nodes", "a:1", "--data-dir", "."], "--nodes are others: one of them"),
        (["--nodes", "a"], "--nodes 'a': allowed is host:port"),
        (["--trace", "FILE"], "go with --nodes"),
        (["--command-config", "FILE"], "go with --nodes"),
        (["--nodes", "a:1", "--token-file", "FILE"], "others may read it"),
        (["FILE", "--token-file", "FILE"], "others may read it"),
        (["--read-only", "--token-file", "none"], "No such file"),
    ],
)
def test_what_the_options_of_the_page_cannot_mean_is_refused(tmp_path: Path, arguments: list[str], why: str) -> None:
    file = tmp_path / "run.kljsonl"
    file.write_bytes(split()[0])
    file.chmod(0o644)
    told = CliRunner().invoke(cli, ["ui", *(str(file) if it == "FILE" else it for it in arguments)])
    assert told.exit_code != 0 and why in " ".join(told.output.split()), told.output


def test_the_page_of_a_recording_is_guarded() -> None:
    pytest.importorskip("starlette")
    from kraftlite.ui.app import TapePage
    from kraftlite.ui.guard import Tokens

    page = TapePage(split()[1], Tokens("o" * 22, "v" * 22), 8088)

    def get(path: str, **headers: str) -> Any:
        return asyncio.run(ask(page.guard, path, headers={"host": "127.0.0.1:8088", **headers}))

    assert get("/api/v1/tape").status == 401
    found = get("/api/v1/tape", authorization=f"Bearer {'v' * 22}")
    assert found.status == 200 and found.json["frames"] == json.loads(json.dumps(split()[1]["frames"]))
    assert get("/api/v1/cluster", authorization=f"Bearer {'v' * 22}").json["recording"]["title"].startswith("seed 3")
    assert get("/api/v1/state", authorization=f"Bearer {'v' * 22}").status == 404
    assert get("/", host="evil.example").status == 403
