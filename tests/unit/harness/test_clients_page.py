"""The page of clients: written and read again it is the same, and a run of a few tests renews what is theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.page import Cell, Page, Table

PAGE = Path(__file__).parents[3] / "docs" / "CLIENTS.md"


def passed(*tests: str) -> Cell:
    return Cell(passed=True, ran=set(tests))


def failed(test: str, text: str) -> Cell:
    return Cell(failed={test: text}, ran={test})


def skipped(reason: str, *tests: str) -> Cell:
    return Cell(skipped={reason: None}, ran=set(tests))


def wide() -> Table:
    return Table(
        cells={
            ("Sarama 1.61.1", "transactions"): passed(),
            ("Sarama 1.61.1", "group: consume, commit, resume"): failed("test_group", "AssertionError: a: b, c"),
            ("kcat 1.7.1 (librdkafka 2.0.2)", "transactions"): skipped("kcat has no transactions"),
            ("kcat 1.7.1 (librdkafka 2.0.2)", "transactions: fenced"): skipped("kcat has no transactions"),
            ("kcat 1.7.1 (librdkafka 2.0.2)", "produce, acks=1"): passed(),
            ("kafka-clients (Java) 4.3.1", "kafka-topics"): skipped("no Java", "test_topics"),
        }
    )


def ranges() -> Table:
    table = Table(wide=False)
    for release in ("1.18.1", "1.7.0", "1.20.7"):
        table.cells["franz-go " + release, "transactions"] = passed()
        table.cells["franz-go " + release, "transactions: fenced"] = skipped("it does not wait")
    table.cells["franz-go 1.15.3", "transactions"] = failed("test_transactions", "refused")
    table.cells["franz-go 1.15.3", "transactions: fenced"] = skipped("it does not wait")
    table.cells["KafkaJS 2.0.2", "transactions"] = passed()
    return table


def test_clients_releases_and_capabilities_have_an_order_of_their_own() -> None:
    assert str(wide()) == (
        "|  | kafka-clients (Java) 4.3.1 | kcat 1.7.1 (librdkafka 2.0.2) | Sarama 1.61.1 |\n"
        "|---|---|---|---|\n"
        "| produce, acks=1 |  | ✓ |  |\n"
        "| group: consume, commit, resume |  |  | ✗ |\n"
        "| transactions |  | – | ✓ |\n"
        "| transactions: fenced |  | – |  |\n"
        "| kafka-topics | – |  |  |\n"
        "\n"
        "- – kafka-clients, everything: no Java\n"
        "- – kcat, transactions, transactions: fenced: kcat has no transactions\n"
        "- ✗ Sarama, group: consume, commit, resume: test_group: AssertionError: a: b, c\n"
    )
    assert str(ranges()) == (
        "|  | releases | transactions | transactions: fenced |\n"
        "|---|---|---|---|\n"
        "| franz-go | 1.7.0, 1.18.1, 1.20.7 | ✓ | – |\n"
        "| franz-go | 1.15.3 | ✗ | – |\n"
        "| KafkaJS | 2.0.2 | ✓ |  |\n"
        "\n"
        "- – franz-go 1.7.0, 1.15.3, 1.18.1, 1.20.7, transactions: fenced: it does not wait\n"
        "- ✗ franz-go 1.15.3, transactions: test_transactions: refused\n"
    )


def test_the_order_of_the_tests_does_not_matter() -> None:
    table = wide()
    turned = Table(cells=dict(reversed(table.cells.items())))
    assert str(turned) == str(table)


def test_what_is_written_is_read_again() -> None:
    page = Page(wide(), wide(), ranges())
    assert str(Page.parsed(str(page))) == str(page)
    text = PAGE.read_text()
    assert str(Page.parsed(text)) == text, "docs/CLIENTS.md is as scripts/clients writes it"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("## Clients of earlier years", "## Others"),
        ("- – kcat, transactions,", "- – kcat, sharing,"),
        ("- – kcat,", "- – rskafka,"),
        ("| transactions |  | – | ✓ |", "| transactions |  | – |"),
    ],
)
def test_another_page_is_refused(old: str, new: str) -> None:
    text = str(Page(wide(), wide(), ranges()))
    assert old in text
    with pytest.raises(ValueError):
        Page.parsed(text.replace(old, new))


def test_a_run_renews_what_it_is_about_and_nothing_else() -> None:
    page = Page.parsed(str(Page(wide(), wide(), ranges())))
    run = Page()
    run.clients.cells["Sarama 1.61.1", "group: consume, commit, resume"] = passed("test_group")
    run.years.cells["franz-go 1.15.3", "transactions"] = passed("test_transactions")
    run.years.cells["KafkaJS 2.0.2", "transactions"] = failed("test_transactions", "too late")
    page.renew(run)
    expected = Page(wide(), wide(), ranges())
    expected.clients.cells["Sarama 1.61.1", "group: consume, commit, resume"] = passed()
    expected.years.cells["franz-go 1.15.3", "transactions"] = passed()
    expected.years.cells["KafkaJS 2.0.2", "transactions"] = failed("test_transactions", "too late")
    assert str(page) == str(expected)


def test_a_failure_stays_until_its_own_test_passes() -> None:
    before = failed("test_resumes", "lost")
    assert before.renewed(passed("test_kip_848")).sign == "✗"
    assert before.renewed(passed("test_kip_848", "test_resumes")).sign == "✓"
    assert before.renewed(skipped("not offered", "test_resumes")).sign == "–"
    again = before.renewed(failed("test_resumes", "twice"))
    assert again.reasons == ["test_resumes: twice"]


def test_a_skip_takes_no_pass_away() -> None:
    assert passed().renewed(skipped("go is not installed", "test_topics")).sign == "✓"
    assert skipped("go is not installed").renewed(passed("test_topics")).sign == "✓"


def test_another_release_needs_a_whole_run() -> None:
    page, run = Page(wide(), wide(), ranges()), Page()
    run.clients.cells["Sarama 1.62.0", "transactions"] = passed("test_transactions")
    run.years.cells["franz-go 1.21.0", "transactions"] = passed("test_transactions")
    run.clients.cells["kafka-go 0.4.51", "transactions"] = passed("test_transactions")
    assert page.others(run) == ["Sarama 1.62.0"]
