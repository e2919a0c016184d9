"""Interchangeable threads: the images of the executions explored are all executions, and nothing is taken on trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tiebreak.cli import app
from tiebreak.errors import InputError, UnsupportedOperationError
from tiebreak.sim.explorer.anchors import choose_anchor
from tiebreak.sim.explorer.checkpoint import save
from tiebreak.sim.explorer.execution import Execution
from tiebreak.sim.explorer.exploration import Exploration, Options, explore
from tiebreak.sim.explorer.families import (
    Steps,
    ainc,
    flag_barrier,
    floating_read,
    inc,
    last_write,
    readers,
    straight,
    wcas,
)
from tiebreak.sim.explorer.operations import (
    Await,
    Lanes,
    Load,
    Location,
    Operation,
    Order,
    Scope,
    Store,
    Update,
    add,
    at_least,
    equal_to,
)
from tiebreak.sim.explorer.orbits import Anchor, Orbits
from tiebreak.sim.explorer.program import Body, Program, Symmetry, Thread, parallel
from tiebreak.sim.explorer.verdicts import Verdict

MODELS = ("sc", "rc11", "ptx")
ANCHORS = [f"{kind}:{block}" for kind in ("enter", "perform") for block in range(4)]


def expand(program: Program, options: Options) -> tuple[set[bytes], Exploration]:
    """Fingerprints of what was explored, and of the images of that where symmetry was asked for."""
    orbits = Orbits(program, Anchor(0, performed=False))
    found: set[bytes] = set()

    def visit(execution: Execution) -> None:
        images = list(orbits.list_images(execution))
        found.update(images if options.symmetry else images[:1])

    exploration = Exploration(program, options, visit=visit)
    exploration.run()
    return found, exploration


def compare(program: Program, model: str, symmetry: str) -> Exploration | None:
    """Require that the images of what was explored are all executions; None if the anchor does not suit."""
    every, whole = expand(program, Options(model, stop=False))
    images, part = expand(program, Options(model, stop=False, symmetry=symmetry))
    if part.unsupported == "symmetry by a block of several operations":
        return None
    assert part.unsupported == "" and part.orbits is not None
    assert images == every
    assert part.orbits.total == whole.counts.complete == len(every)
    assert part.orbits.explored <= whole.counts.complete
    assert bool(part.failures) == bool(whole.failures)
    return part


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("symmetry", ANCHORS)
@pytest.mark.parametrize(
    "program",
    [ainc(4), inc(3), last_write(4), floating_read(3), readers(4), wcas(3), flag_barrier(3, 2, lanes=True),
     flag_barrier(2, 4, lanes=True)],
    ids=lambda program: program.name,
)  # fmt: skip
def test_images_are_all_executions(program: Program, symmetry: str, model: str) -> None:
    compare(program, model, symmetry)


@pytest.mark.parametrize(
    ("program", "model", "explored", "orbits", "total"),
    [
        (ainc(6), "ptx", 1, 1, 720),
        (last_write(6), "sc", 1, 1, 720),
        (floating_read(5), "sc", 6, 6, 720),
        (readers(6), "sc", 7, 7, 64),
        (inc(3), "sc", 6, 6, 36),
        (wcas(5), "sc", 6, 6, 81),
        # Who passed before whom is a graph without cycles, of which there are 2, 6 and 31 without names (OEIS A003087).
        (flag_barrier(2, 2, lanes=True), "ptx", 2, 2, 3),
        (flag_barrier(3, 2, lanes=True), "ptx", 8, 6, 25),
        (flag_barrier(4, 2, lanes=True), "ptx", 64, 31, 543),
    ],
    ids=lambda entry: entry.name if isinstance(entry, Program) else str(entry),
)
def test_chosen_anchor_leaves_few(program: Program, model: str, explored: int, orbits: int, total: int) -> None:
    options = Options(model)
    part = explore(program, replace(options, symmetry=str(choose_anchor(program, options))))
    assert part.conclusion.verdict is Verdict.PROVED and part.counts.blocked == 0
    assert part.orbits is not None
    assert (part.orbits.explored, part.orbits.number, part.orbits.total) == (explored, orbits, total)


def rename(places: Mapping[int, int], location: Location) -> Location:
    return tuple(places[part] for part in location) if isinstance(location, tuple) else location


STEPS = st.sampled_from(["add", "load", "store", "own", "others", "tell", "stop", "wait", "exact"])


def take_steps(own: int, number: int, steps: list[str]) -> Body:
    """A thread among so many that are alike; it may stop early, wait, and look at what belongs to the others."""
    peers = [peer for peer in range(number) if peer != own]

    def body() -> Steps:
        seen: list[object] = []
        issued: dict[str, Operation | Lanes] = {
            "add": add("x", 1),
            "load": Load("x", Order.ACQUIRE),
            "store": Store("x", 1, Order.RELEASE),
            "own": Store((own,), 1, Order.RELEASE),
            "others": Lanes(tuple(Load((peer,), Order.ACQUIRE) for peer in peers)),
            "tell": Lanes(tuple(Store((peer, own), 1) for peer in peers)),
            "wait": at_least("x", 1),
            "exact": equal_to("x", 1),
        }
        for step in steps:
            if step == "stop":
                if seen and seen[-1]:
                    return
                continue
            read = yield issued[step]
            if step in ("add", "load", "others"):
                seen.append(sum(read) if step == "others" else read)

    return body


@st.composite
def alike(draw: st.DrawFn) -> Program:
    """Two or three threads that do the same, and perhaps one more."""
    number = draw(st.integers(2, 3))
    steps = draw(st.lists(STEPS, min_size=1, max_size=5 - number))
    bodies = [take_steps(own, number, steps) for own in range(number)]
    if draw(st.booleans()):
        bodies.append(straight(draw(st.sampled_from([Store("x", 2), Load("x"), add("x", 1)]))))
    return parallel(f"{number} alike", *bodies, symmetry=Symmetry(tuple(range(number)), rename))


@pytest.mark.parametrize("model", MODELS)
@given(program=alike(), symmetry=st.sampled_from(ANCHORS))
def test_images_are_all_executions_of_drawn_programs(program: Program, symmetry: str, model: str) -> None:
    compare(program, model, symmetry)


def test_thread_before_the_anchor_for_ever_holds_the_others() -> None:
    # Who reads 1 does not come to the anchor; the image in which that is the last one is explored.
    program = parallel("early end", *[take_steps(own, 2, ["add", "stop", "own"]) for own in range(2)],
                       symmetry=Symmetry((0, 1), rename))  # fmt: skip
    part = compare(program, "sc", "perform:1")
    assert part is not None and (part.counts.complete, part.counts.blocked) == (1, 1)


def test_failure_is_found_in_an_image() -> None:
    def fail_if_last() -> Steps:
        assert (yield add("x", 1)) < 2, "the last one"

    program = parallel("last", *[fail_if_last] * 3, symmetry=Symmetry((0, 1, 2)))
    for model in MODELS:
        assert str(explore(program, Options(model, symmetry="perform:0")).conclusion) == "FAILED(assertion)"
    equal = flag_barrier(2, 2, "==", lanes=True)
    assert str(explore(equal, Options("ptx", symmetry="enter:2")).conclusion) == "FAILED(progress)"


def load_then(value: int) -> Body:
    def body() -> Steps:
        if (yield Load("x")) == 1:
            yield Store("y", value)

    return body


def swap_names(places: Mapping[int, int], location: Location) -> Location:
    return f"x{places[int(str(location)[1])]}" if str(location)[1:].isdecimal() else location


def claim(*bodies: Body, initial: Mapping[Location, int] | None = None) -> Program:
    return parallel("claim", *bodies, initial=initial, symmetry=Symmetry((0, 1), swap_names))


def list_false_claims() -> Iterator[tuple[str, Program, str]]:
    yield "order of peers", flag_barrier(3, 2), r"rank 2 would have to do: store 1\[2,0\].*it does: store 0\[2,0\]"
    yield "value", claim(straight(Store("x", 1)), straight(Store("x", 2))), "T1 would have to do: store x = 1"
    yield "order", claim(straight(Load("x")), straight(Load("x", Order.ACQUIRE))), "load x .acquire.sys."
    yield "length", claim(straight(Load("x")), straight(Load("x"), Load("x"))), "ends"
    yield "after a value", claim(load_then(1), load_then(2), straight(Store("x", 1))), "store y = "
    yield "update", claim(straight(add("x", 1)), straight(add("x", 2))), "x add 2 .* does with 0 what x add 1"
    waits = [Await("x", lambda value, bound=bound: value >= bound) for bound in (1, 2)]
    yield "await", claim(*map(straight, waits), straight(Store("x", 1), Store("x", 2))), "does with 1"
    yield "initial", claim(straight(Load("x0")), straight(Load("x1")), initial={"x1": 1}), "'x[01]' begins otherwise"
    threads = (Thread(straight(Load("x")), "a"), Thread(straight(Load("x")), "b", gpu=1), Thread(straight(Load("x"))))
    yield "place", Program(threads, symmetry=Symmetry((0, 1))), "not alike in where they run"


@pytest.mark.parametrize(("program", "reason"), [pytest.param(*entry, id=name) for name, *entry in list_false_claims()])
def test_false_claim_is_no_proof(program: Program, reason: str) -> None:
    exploration = explore(program, Options("sc", symmetry="enter:0"))
    assert exploration.conclusion.verdict is Verdict.UNSUPPORTED
    with pytest.raises(UnsupportedOperationError, match=reason):
        raise UnsupportedOperationError(exploration.unsupported)


def test_what_does_not_go_with_symmetry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="states which threads may be permuted"):
        Exploration(parallel("none", straight(Load("x"))), Options(symmetry="enter:0"))
    with pytest.raises(InputError, match="up to 6 interchangeable threads"):
        Exploration(readers(7), Options(symmetry="enter:0"))
    with pytest.raises(InputError, match="merged awaits nor a check"):
        Exploration(readers(2), Options(symmetry="enter:0"), check=lambda _: None)
    for other in ({"settle": True}, {"merge_awaits": True}):
        with pytest.raises(InputError, match="neither settled locations, merged awaits"):
            Exploration(readers(2), Options(symmetry="enter:0", **other))
    with pytest.raises(InputError, match="not of samples"):
        Exploration(readers(2), Options(symmetry="enter:0")).sample(2)
    with pytest.raises(InputError, match="without symmetry"):
        save(Exploration(readers(2), Options(symmetry="enter:0")), tmp_path / "checkpoint")
    with pytest.raises(InputError, match="enter:BLOCK or perform:BLOCK"):
        Exploration(readers(2), Options(symmetry="leave:0"))


def test_update_at_gpu_scope_is_not_one_at_system_scope() -> None:
    ends = (Scope.GPU, Scope.SYSTEM)
    bodies = [straight(Update("x", lambda value: 1, scope=scope)) for scope in ends]
    exploration = explore(claim(*bodies), Options("ptx", symmetry="enter:0"))
    assert exploration.conclusion.verdict is Verdict.UNSUPPORTED


def run_command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["explore", *arguments])
    return result.exit_code, " ".join(result.output.split())


def test_command_counts_what_was_not_explored() -> None:
    code, output = run_command("flag_barrier", "--ranks", "4", "--epochs", "2", "--set", "lanes=true", "--symmetry")
    assert code == 0 and "PROVED" in output
    assert "64 executions stand for 543, 31 up to permutations of threads 0, 1, 2, 3, which enter block 2" in output


@pytest.mark.parametrize("option", [("--checkpoint", "file"), ("--shard", "0/2"), ("--shards", "2")])
def test_command_refuses_what_does_not_go_together(option: tuple[str, str]) -> None:
    result = CliRunner().invoke(app, ["explore", "ainc", "--set", "n=2", "--symmetry", *option])
    assert isinstance(result.exception, InputError)
