"""The benchmark of the selection on one GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from tiebreak.errors import MissingBackendError

from .checking import find_violation, poison_outputs
from .contenders import Contender, Launch
from .inputs import InputSet, draw_input, natural_world_size
from .model import Measurement, Method, Rejection, Shape
from .timing import capture_graphs, replay_once, time_graphs


def run_selection(
    shapes: Sequence[Shape], kinds: Sequence[str], contenders: Sequence[Contender], method: Method
) -> Iterator[Measurement | Rejection]:
    """Check and time every contender on every shape and kind of input.

    Raises:
        InputError: An unknown kind of input.
        MissingBackendError: A contender needs a package that is not there.
    """
    for shape in shapes:
        for kind in kinds:
            inputs = draw_sets(kind, shape, natural_world_size(shape), method)
            gathered = [torch.from_numpy(drawn.candidates).cuda() for drawn in inputs]
            for contender in contenders:
                yield measure(contender, shape, kind, inputs, gathered, method)


def draw_sets(kind: str, shape: Shape, world_size: int, method: Method) -> list[InputSet]:
    """Draw the input sets of one shape and kind."""
    return [draw_input(kind, shape, world_size, method.seed * method.sets + number) for number in range(method.sets)]


def measure(
    contender: Contender,
    shape: Shape,
    kind: str,
    inputs: Sequence[InputSet],
    gathered: Sequence[torch.Tensor],
    method: Method,
) -> Measurement | Rejection:
    """Check one contender, and time the very graphs that were checked.

    Raises:
        MissingBackendError: The contender needs a package that is not there.
    """
    try:
        graphs, reason = check(lambda: [contender.prepare(one, shape.k) for one in gathered], inputs, contender, method)
    except MissingBackendError:
        raise
    except Exception as error:  # Whatever a contender raises, the others are still worth timing.
        graphs, reason = [], f"{type(error).__name__}: {error}"
    if reason:
        return Rejection("select", contender.name, contender.ours, kind, shape, reason)
    contract = "-" if contender.contract is None else contender.contract.value
    time = time_graphs(graphs, method)
    return Measurement("select", contender.name, contract, contender.ours, kind, shape, 1, time)


def check(
    prepare: Callable[[], list[Launch]], inputs: Sequence[InputSet], contender: Contender, method: Method
) -> tuple[list[torch.cuda.CUDAGraph], str]:
    """Return the captured graphs of a contender, and what is wrong with their outputs or an empty string."""
    launches = prepare()
    graphs = capture_graphs(launches, method)
    poison_outputs(launches)
    replay_once(graphs)
    return graphs, find_violation(launches, inputs, contender.contract)
