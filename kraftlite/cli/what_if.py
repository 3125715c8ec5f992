"""sim --what-if: two runs that differ in a fault or in the seed, compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from kraftlite.cli.common import print_json

if TYPE_CHECKING:
    from kraftlite.sim.fault_plan import FaultPlan
    from kraftlite.sim.run import RunPlan
    from kraftlite.sim.what_if import Observed, Parting


def compare(plan: RunPlan, changes: tuple[str, ...], output: str, write: Callable[[bytes], object] | None) -> int:
    """Run both and tell; returns the exit status of the changed run, whose recording goes to `write`."""
    from kraftlite.sim.fault_plan import UnknownNode
    from kraftlite.sim.what_if import changed, observe, part

    try:
        seed, faults = _changes(changes)
        other = changed(plan, faults, seed)
        first, second = observe(plan), observe(other, write)
    except (ValueError, UnknownNode) as error:
        raise click.ClickException(f"--what-if: {error}") from None
    parting = part(first, second)
    if output == "json":
        print_json({"as_it_was": _as_json(first), "what_if": _as_json(second), "parting": _parting(parting)})
    else:
        _tell(first, second, parting)
    return int(second.result.outcome)


def _changes(given: tuple[str, ...]) -> tuple[int | None, dict[int, FaultPlan | None]]:
    """`2=3000 kill 4 for 500`, `2=` (without it), and `seed=7`. Raises ValueError."""
    from kraftlite.sim.fault_plan import parse
    from kraftlite.sim.plans import MAX_SEED

    seed: int | None = None
    found: dict[int, FaultPlan | None] = {}
    for text in given:
        number, equals, line = text.partition("=")
        if number.strip() == "seed":
            if not line.strip().isdecimal() or len(line) > 19 or int(line) > MAX_SEED:
                raise ValueError(f"{text}: allowed is seed= with a whole number from 0 to {MAX_SEED}")
            seed = int(line)
            continue
        if not equals or not number.strip().isdecimal() or len(number) > 9:
            raise ValueError(f"{text}: allowed is NUMBER=FAULT, NUMBER= to leave it out, or seed=NUMBER")
        found[int(number)] = parse(line) if line.strip() else None
    return seed, found


def _as_json(run: Observed) -> dict[str, object]:
    result = run.result
    return {
        "seed": result.plan.seed,
        "faults": [str(it) for it in result.faults],
        "outcome": result.outcome.name,
        "checker": result.checker,
        "story": result.story,
        "trace": result.trace,
        "events": len(run.events),
        "records": {"produced": result.produced, "acknowledged": result.acked, "consumed": result.consumed},
        "two_active_controllers_ms": run.two_active_us / 1000,
    }


def _parting(parting: Parting | None) -> dict[str, object] | None:
    if parting is None:
        return None
    return {"at_ms": parting.at_us / 1000, "same": parting.same, "as_it_was": parting.first, "what_if": parting.second}


def _tell(first: Observed, second: Observed, parting: Parting | None) -> None:
    for name, run in (("as it was", first), ("what if", second)):
        result = run.result
        click.echo(f"{name}:")
        for number, fault in enumerate(result.faults, 1):
            click.echo(f"  {number}  {fault}")
        click.echo(
            f"  {result.outcome.name}; {result.acked} of {result.produced} records acknowledged; "
            f"two active controllers at once for {run.two_active_us / 1_000_000:.3f} s"
        )
        if result.story:
            click.echo(f"  {result.checker}: {result.story}")
    if parting is None:
        click.echo("both runs are the same, event for event")
        return
    click.echo(f"both are the same until {parting.at_us / 1_000_000:.6f} s ({parting.same} events); then")
    click.echo(f"  as it was: {parting.first or 'nothing more'}")
    click.echo(f"  what if:   {parting.second or 'nothing more'}")
