"""The PTX machine as a backend: compiled selectors and localisation, and what becomes of findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiebreak.backends.ptx import PtxBackend
from tiebreak.backends.registry import PTX, expand_names, form_of, make_backend, on_device, on_ptx_machine
from tiebreak.errors import InputError, SimulationError
from tiebreak.impl.kernel_store import find_compiler
from tiebreak.ptx.call_paths import MARK, CallPaths
from tiebreak.ptx.code import KernelCode
from tiebreak.ptx.direct import DirectRank
from tiebreak.ptx.routing import Request
from tiebreak.sim.ptx.module import Location
from tiebreak.sim.ptx.parser import parse
from tiebreak.verify.case import KINDS
from tiebreak.verify.checks import draw_gathered, try_selection

CONTRACTS = ("order", "set")
IMPLEMENTATIONS = ("triton", "cutedsl") if find_compiler() else ("triton",)
FEW = settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


class Chosen(PtxBackend):
    """A backend that leaves nothing to the device."""

    def __init__(self, name: str, implementation: str) -> None:
        super().__init__(name)
        self._chosen = implementation

    def select(self, *arguments: object, **options: object) -> np.ndarray:
        return super().select(*arguments, implementation=self._chosen, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", PTX)
@FEW
@given(st.data())
def test_compiled_selectors_give_the_ids_of_the_oracle(
    name: str, implementation: str, contract: str, data: st.DataObject
) -> None:
    """One buffer of an even number of candidates, so that few kernels serve all inputs."""
    kind, k = data.draw(st.sampled_from(sorted(KINDS))), data.draw(st.integers(1, 20))
    rows, seed = data.draw(st.integers(1, 2)), data.draw(st.integers(0, 2**16))
    local = 2 * data.draw(st.integers(1, 9))
    gathered = draw_gathered(np.random.default_rng(seed), kind, ranks=1, rows=rows, local=local)
    assert try_selection(Chosen(name, implementation), gathered, gathered, k, "ieee", "rank-major", contract) == ""


@pytest.mark.parametrize("name", PTX)
def test_candidates_are_found_by_address(name: str) -> None:
    gathered = draw_gathered(np.random.default_rng(3), "plateau", ranks=3, rows=2, local=7)
    backend = Chosen(name, "triton")
    assert try_selection(backend, gathered, gathered, 8, "torch", "peers", "set") == ""


@pytest.mark.parametrize("name", PTX)
def test_localised_ids_are_those_of_the_rank(name: str) -> None:
    ids = np.array([[7, 0, -1, 2, 5, 3], [6, 6, 4, -1, -1, 1]], dtype=np.int32)
    local, counts = make_backend(name).localise(ids, rank=1, world_size=2, interleave=2)
    assert local.tolist() == [[3, 0, 1, -1, -1, -1], [2, 2, -1, -1, -1, -1]]
    assert counts.tolist() == [3, 2]


def test_names() -> None:
    assert expand_names(["ptx", "spec"]) == [*PTX, "spec"]
    assert {make_backend(name).name for name in PTX} == set(PTX)
    assert all(on_ptx_machine(name) and not on_device(name) and form_of(name) == "alternating" for name in PTX)
    for wrong in ("ptx:sm_80", "ptx"):
        with pytest.raises(InputError, match="backend"):
            make_backend(wrong)


COPY = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry copy(.param .u64 table, .param .u64 out)
.reqntid 1
{
    .reg .b64 %rd<6>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [table];
    ld.param.u64 %rd2, [out];
    ld.global.u64 %rd3, [%rd1+8];
    ld.global.b32 %r1, [%rd3+4];
    st.global.b32 [%rd2], %r1;
    ret;
}
"""


def copy(rank: DirectRank, fresh: bool) -> tuple[Request, torch.Tensor]:
    """A launch that gets addresses only: of a table of two parts, and of an output."""
    parts = [rank.upload(torch.tensor([number, 10 + number], dtype=torch.int32), "part") for number in range(2)]
    if fresh:
        parts[1] = torch.empty(2, dtype=torch.int32)
    table = rank.upload(torch.tensor([part.data_ptr() for part in parts], dtype=torch.int64), "table")
    out = torch.empty(1, dtype=torch.int32)
    return Request(KernelCode(COPY, "copy.ptx"), (1, 1, 1), (1, 1, 1), (table.data_ptr(), out.data_ptr())), out


def test_addresses_lead_to_the_memory_of_the_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIEBREAK_CACHE", str(tmp_path))
    with DirectRank("tiebreak.impl", "sm_100a").open() as rank:
        request, out = copy(rank, fresh=False)
        rank.launch(request)
        assert out.tolist() == [11]
        request, _ = copy(rank, fresh=True)
        with pytest.raises(SimulationError, match="uninitialised") as raised:
            rank.launch(request)
    assert "replay: tiebreak ptx" in str(raised.value) and "table:" in str(raised.value)
    assert torch.empty.__module__ != "tiebreak.ptx.direct", "torch is as it was"


def test_what_a_launch_wrote_may_be_read_by_the_next() -> None:
    with DirectRank("tiebreak.impl", "sm_100a").open() as rank:
        request, _ = copy(rank, fresh=False)
        middle, out = torch.empty(2, dtype=torch.int32), torch.empty(1, dtype=torch.int32)
        table = rank.upload(torch.tensor([middle.data_ptr()] * 2), "table")
        rank.launch(replace(request, arguments=(request.arguments[0], middle.data_ptr() + 4)))
        rank.launch(replace(request, arguments=(table.data_ptr(), out.data_ptr())))
    assert out.tolist() == [11]


PLAIN = f"""
.version 9.0
.target sm_100a
.entry k()
{{
    .reg .b32 %r<3>;
    .loc 1 100 3, function_name $L__info, inlined_at 1 1 {MARK}
    mov.b32 %r0, 0;
    .loc 1 100 3, function_name $L__info, inlined_at 1 2 {MARK}
    mov.b32 %r1, 0;
    .loc 1 5 1
    ret;
}}
.file 1 "helpers.py"
"""


def test_numbered_paths_become_the_calls_that_they_stand_for() -> None:
    paths = CallPaths(lambda file: True)
    host = ("host.py", 9, 1)
    paths.numbers[("kernel.py", 20, 1), host] = 1
    paths.numbers[("helpers.py", 50, 1), ("kernel.py", 30, 1), host] = 2
    first, second, third = parse(paths.expand(PLAIN)).kernels["k"].body
    outer = Location("kernel.py", 30, 1)
    # The host's line is part of every path and says nothing.
    assert first.location == Location("helpers.py", 100, 3, Location("kernel.py", 20, 1))
    assert second.location == Location("helpers.py", 100, 3, Location("helpers.py", 50, 1, outer))
    assert third.location == Location("helpers.py", 5, 1)


@pytest.mark.cutedsl
def test_findings_in_a_cutedsl_kernel_name_the_calls_that_led_there() -> None:
    from tiebreak.impl.selector import find_reciprocal, selector_recipe
    from tiebreak.impl.specialization import SelectorSpecialization
    from tiebreak.ptx.launch import launch

    recipe = selector_recipe(SelectorSpecialization(threads=128, vectors=1), "sm_100a")
    candidates, out = torch.zeros((1, 200, 2), dtype=torch.int32), torch.zeros((1, 4), dtype=torch.int32)
    # The launch says 256 candidates where there are 200.
    arguments = (candidates, out, 0, 0, 2048, 0, 4, 256, 256, find_reciprocal(256), 1, 4, 0)
    (finding,) = launch(recipe, (1,), *arguments).findings
    assert finding.kind == "out-of-bounds"
    location, calls = finding.actors[0].instruction.location, []
    while location is not None:
        calls.append(Path(location.file).name)
        location = location.inlined_at
    assert calls[0] == "instructions.py" and "candidates.py" in calls and calls[-1] == "selector.py"
