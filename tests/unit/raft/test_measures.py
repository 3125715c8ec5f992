"""What a node's part in the quorum costs."""

from __future__ import annotations

from kraftlite.raft.measures import RaftMeasures


def test_elections_commits_and_records_are_measured() -> None:
    measures = RaftMeasures()
    measures.begin(10)
    measures.look(1_000, "unattached", 10, None)
    measures.look(2_000, "prospective", 10, None)
    measures.look(3_000, "candidate", 10, None)
    measures.look(5_000, "leader", 11, None)
    assert (measures.elections.count, measures.elections.total_us) == (1, 3_000)
    assert (measures.appended, measures.fetched) == (1, 0)
    measures.look(6_000, "leader", 14, None)
    measures.look(9_000, "leader", 14, 11)
    assert (measures.commits.count, measures.commits.total_us) == (1, 4_000)
    measures.look(10_000, "leader", 14, 14)
    assert (measures.commits.count, measures.commits.total_us) == (2, 8_000)


def test_what_a_leader_loses_is_not_committed() -> None:
    measures = RaftMeasures()
    measures.look(1_000, "leader", 5, 5)
    measures.look(2_000, "leader", 9, 5)
    measures.look(3_000, "follower", 6, 5)
    measures.look(4_000, "follower", 12, 12)
    assert measures.commits.count == 1
    assert (measures.appended, measures.fetched) == (9, 6)


def test_an_election_goes_on_while_there_is_nobody() -> None:
    measures = RaftMeasures()
    measures.look(1_000, "candidate", 0, None)
    measures.look(2_000, "unattached", 0, None)
    measures.look(7_000, "follower", 0, None)
    measures.look(8_000, "follower", 0, None)
    assert (measures.elections.count, measures.elections.max_us) == (1, 6_000)
