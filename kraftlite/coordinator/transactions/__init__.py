"""Transactions: what a transactional id may do next.

| module | what it has |
|---|---|
| `states` | the states of an id, and which may follow which |
| `rules` | the answer to each request in each state: a refusal, an answer, or the next state to write |
| `records` | the states in Kafka's record format |
| `shard_core`, `events` | the state machine of one partition of `__transaction_state`, and what it is asked and told |
| `failures` | what an append that failed means |
| `held` | requests that wait for the step of their id that is under way |
| `coordinator`, `api` | a broker's coordinator, and what it answers to those who look |
| `markers`, `markers_driver` | the markers of decided outcomes, on their way to the leaders of partitions |
| `config` | Kafka's keys |

A rule looks at nothing but its arguments: `rules.end(entry, ask, now_ms)` gives a `Refused`, an `Answered` or a `Next`. Whoever
runs the rules keeps one state that is being written (`Entry.pending`) of each id, appends `Next.transaction`, and calls it the
current one when the record is below the high watermark. Source: KIP-98, KIP-360, KIP-447, KIP-890; TX of
docs/spec/transactions.md."""

from __future__ import annotations
