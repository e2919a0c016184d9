"""A named target verified or replayed, from the words of the command line to a cell of the report."""

from __future__ import annotations

import time

from tiebreak.errors import InputError
from tiebreak.inputs.captured import CapturedInput
from tiebreak.report.model import Cell
from tiebreak.spec.contracts import Contract
from tiebreak.target.loading import load_target
from tiebreak.target.record import target_cell
from tiebreak.target.search import replay_target, verify_target
from tiebreak.target.tokens import decode_input


def parse_contract(name: str) -> Contract:
    """Contract of a name.

    Raises:
        InputError: There is no such contract.
    """
    try:
        return Contract(name)
    except ValueError as error:
        limit = f"must be one of {', '.join(contract.value for contract in Contract)}"
        raise InputError("contract", value=name, limit=limit, remedy="state what the target promises") from error


def run_target(
    name: str,
    contract: str,
    preset: str = "ieee",
    seed: int = 0,
    max_examples: int = 500,
    captured: CapturedInput | None = None,
    replay_input: str | None = None,
) -> Cell:
    """Verify a target, or try it on one input again.

    Args:
        name: ``module:attribute`` or a spelling in ``adapters.ADAPTERS``.
        contract: "values", "set" or "order".
        preset: Name of the total order.
        seed: Seed of the drawn inputs.
        max_examples: Number of drawn inputs.
        captured: Real input to try as well; the shipped scores if None.
        replay_input: Token of the only input to try, instead of all of the above.

    Raises:
        InputError: The target, the contract, the preset or the token is unusable.
    """
    target, promised = load_target(name), parse_contract(contract)
    started = time.monotonic()
    if replay_input is None:
        report = verify_target(target, promised, preset, seed, max_examples, captured)
    else:
        report = replay_target(target, decode_input(replay_input), promised, preset)
    return target_cell(name, promised, preset, report, round(time.monotonic() - started, 3))
