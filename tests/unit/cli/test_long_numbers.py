"""Numbers with more digits than Python reads."""

from __future__ import annotations

import pytest

from kraftlite.cli.main import main
from kraftlite.model.limits import MAX_INT32, MAX_INT64
from kraftlite.model.numbers import whole
from kraftlite.obs.explain import Subject, UnknownSubject, explain

LONG = "9" * 5000
NOWHERE = ("--bootstrap-server", "127.0.0.1:1")


def test_whole_numbers_and_their_bounds() -> None:
    assert [whole(text) for text in ("0", "007", str(MAX_INT64), "0" * 5000 + "5")] == [0, 7, MAX_INT64, 5]
    for text in ("", "-1", "+1", " 1", "1_0", "٣", "1.0", str(MAX_INT64 + 1), LONG):
        assert whole(text) is None, text
    assert (whole(str(MAX_INT32), MAX_INT32), whole(str(MAX_INT32 + 1), MAX_INT32)) == (MAX_INT32, None)


@pytest.mark.parametrize("kind", ["node", "record"])
def test_explain_refuses_a_number_that_is_none_of_a_node_or_record(kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} 9+…: allowed is a number"):
        Subject.parse(kind, LONG)
    with pytest.raises(UnknownSubject):
        explain([], Subject.parse("partition", f"orders-{LONG}"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("reassign", "start", f"orders-{LONG}=1", *NOWHERE), "allowed is topic-partition"),
        (("reassign", "start", f"orders-0={LONG}", *NOWHERE), "allowed is topic-partition=1,2,3"),
        (("reassign", "start", "orders-0=2147483648", *NOWHERE), "allowed is topic-partition=1,2,3"),
        (("describe", "--bootstrap-server", f"127.0.0.1:{LONG}"), "allowed is host:port"),
        (("compat", "kafka-get-offsets", "--topic-partitions", f"t:{LONG}", *NOWHERE), 'For input string: "999'),
        (
            ("compat", "kafka-console-consumer", "--topic", "t", "--partition", "0", "--offset", LONG, *NOWHERE),
            "a number has 5000 digits",
        ),
    ],
)
def test_commands_say_what_is_allowed(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == (1 if "kafka-get-offsets" in arguments else 2)
    told = capsys.readouterr().err
    assert said in told and "Traceback" not in told and "Exceeds the limit" not in told
