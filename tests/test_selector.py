"""Host side of the CuTeDSL selector: which kernel serves a call, what it is launched with, and what is refused."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tiebreak.errors import InputError, MissingBackendError
from tiebreak.impl import kernel_store, select, selector
from tiebreak.impl.geometry import SelectionContract
from tiebreak.impl.kernel_binary import SHARED_LIMIT
from tiebreak.impl.kernel_recipes import list_representatives, standard_specializations
from tiebreak.impl.policy import POLICIES
from tiebreak.impl.selector_choice import FEW_ROWS, LARGEST_ROW, MANY_ROWS, choose_specialization, count_slots
from tiebreak.impl.specialization import SelectorSpecialization

IEEE = POLICIES["ieee"]
PARAMETERS = "qqqqqqqiiiiii"
"""Types of the kernel's parameters; test_codegen holds compiled kernels to the same."""

STREAM, MULTIPROCESSORS = 0x5000, 4


def choose(count: int, rows: int = 1, k: int = 2048, **others: Any) -> SelectorSpecialization:
    arguments = {"contract": "order", "policy": IEEE, "multiprocessors": 132, **others}
    return choose_specialization(rows=rows, count=count, k=k, **arguments)


# -- choice ----------------------------------------------------------------------------------------------------------

CALLS = st.fixed_dictionaries(
    {
        "count": st.integers(1, 40_000) | st.integers(1, 320).map(lambda blocks: 128 * blocks),
        "rows": st.sampled_from([1, 132, 133, 4096]),
        "k": st.sampled_from([1, 255, 256, 257, 2048, 4096, 5000, 8192]),
        "contract": st.sampled_from(["order", "set"]),
        "policy": st.sampled_from(list(POLICIES.values())),
        "sources": st.sampled_from(["one", "strided", "peers"]),
        "source_candidates": st.sampled_from([1, 2, 64]),
        "paired": st.booleans(),
        "stateful": st.booleans(),
    }
)


@settings(max_examples=500, deadline=None)
@given(CALLS)
def test_a_selector_holds_its_row_and_fits_every_target(call: dict[str, Any]) -> None:
    chosen = choose(**call)
    divides = call["sources"] != "one" and call["source_candidates"] == 1
    assert chosen.streamed == (call["count"] > 16_384 or divides)
    assert chosen.streamed or call["count"] <= chosen.capacity
    assert chosen.threads in (128, 256, 512, 1024)
    assert chosen.vectors <= 16
    assert chosen.threads * chosen.minimum_ctas <= 2048
    assert chosen.shared_bytes <= SHARED_LIMIT
    served = (chosen.contract, chosen.nan, chosen.zero, chosen.sources, chosen.paired, chosen.stateful)
    policy = call["policy"]
    assert served == (
        *(call["contract"], policy.nan, policy.zero),
        *(call["sources"], call["paired"], call["stateful"]),
    )
    if call["contract"] == "set":
        assert chosen.slots == 0
    else:
        selected = min(call["k"], call["count"])
        assert selected <= chosen.slots <= max(256, 2 * selected - 1)
        assert chosen.slots.bit_count() == 1


@pytest.mark.parametrize("rows", [132, 133])
@pytest.mark.parametrize("count", [256, 768, 1024, 1280, 2048, 4096, 6144, 8192, 10_240, 14_336, 16_384])
def test_rows_of_a_round_length_fill_their_cta(rows: int, count: int) -> None:
    assert choose(count, rows).capacity == count
    assert choose(count - 1, rows).capacity >= count


@pytest.mark.parametrize("contract", ["set", "order"])
@pytest.mark.parametrize("rows", [132, 133])
def test_other_rows_take_the_next_shape_of_the_table(rows: int, contract: SelectionContract) -> None:
    table = (FEW_ROWS if rows == 132 else MANY_ROWS)[contract]
    capacities = [shape.capacity for shape in table]
    assert capacities == [256 << step for step in range(7)]
    for shape in table:
        chosen = choose(shape.capacity - 2, rows, contract=contract, k=1)
        assert (chosen.threads, chosen.vectors) == (shape.threads, shape.vectors)
        filled = choose(shape.capacity, rows, contract=contract, k=1)
        assert (filled.threads, filled.vectors, filled.minimum_ctas) == (
            *(shape.threads, shape.vectors),
            shape.minimum_ctas,
        )


def test_more_rows_than_multiprocessors_change_the_table() -> None:
    contracts: tuple[SelectionContract, ...] = ("set", "order")
    for contract in contracts:
        assert choose(4096, 132, contract=contract).threads == FEW_ROWS[contract][4].threads
        assert choose(4096, 133, contract=contract).threads == MANY_ROWS[contract][4].threads


@pytest.mark.parametrize(("selected", "slots"), [(1, 256), (256, 256), (257, 512), (2048, 2048), (8192, 8192)])
def test_slots_are_a_power_of_two(selected: int, slots: int) -> None:
    assert count_slots(selected) == slots


@given(st.integers(2, 16_384), st.integers(0, 16_383))
def test_the_reciprocal_divides(divisor: int, dividend: int) -> None:
    word = selector.find_reciprocal(divisor)
    assert -(2**31) <= word < 2**31
    for each in (dividend, dividend // divisor * divisor, max(0, dividend // divisor * divisor - 1)):
        assert (each * (word % 2**32)) >> 32 == each // divisor


# -- launch ----------------------------------------------------------------------------------------------------------


@dataclass
class Device:
    """Stands in for a GPU: keeps what each launch reads from memory, by the arithmetic of the kernel."""

    launches: list[SimpleNamespace] = field(default_factory=list)
    index: list[int | None] = field(default_factory=list)

    def obtain(self, specialization: SelectorSpecialization, index: int | None) -> Any:
        self.index.append(index)

        def launch(
            grid: tuple[int, int, int], threads: int, arguments: tuple[int, ...], *, stream: int, programmatic: bool
        ) -> None:
            assert (threads, stream, grid[1:]) == (specialization.threads, STREAM, (1, 1))
            assert programmatic
            struct.pack(PARAMETERS, *arguments)
            self.launches.append(read_launch(specialization, grid[0], arguments))

        return SimpleNamespace(launch=launch, count_ctas=lambda threads: 2048 // threads)


def read_launch(specialization: SelectorSpecialization, rows: int, arguments: tuple[int, ...]) -> SimpleNamespace:
    """Return the candidates of every row, and the addresses of the rows of the output."""
    candidates, output, state, source_bytes, row_bytes, slot_bytes, stride, count, length, magic, slots = arguments[:11]
    k, ahead = arguments[11:]
    assert ahead in (0, MULTIPROCESSORS * (2048 // specialization.threads))
    offset = 0
    if specialization.stateful:
        offset = ((read(ctypes.c_int64, state) + 1) & (slots - 1)) * slot_bytes
    found = np.empty((rows, count, 2), dtype=np.int32)
    for row in range(rows):
        for position in range(count):
            source = position // length if specialization.streamed else (position * (magic % 2**32)) >> 32
            base = offset + row * row_bytes
            if specialization.sources == "one":
                address = candidates + base + position * 8
            elif specialization.sources == "strided":
                address = candidates + base + source * source_bytes + (position - source * length) * 8
            else:
                table = read(ctypes.c_int64, candidates + source * 8)
                address = table + base + (position - source * length) * 8
            assert address % 16 == 0 or not specialization.paired or position % 2
            found[row, position] = [read(ctypes.c_int32, address), read(ctypes.c_int32, address + 4)]
    rows_out = [output + row * stride * 4 for row in range(rows)]
    return SimpleNamespace(specialization=specialization, found=found, k=k, outputs=rows_out)


def read(kind: Any, address: int) -> int:
    return int(kind.from_address(address).value)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A GPU whose memory is that of the CPU."""
    device = Device()
    monkeypatch.setattr(select, "resolve_implementation", lambda implementation, device: "cutedsl")
    monkeypatch.setattr(selector, "obtain_selector", device.obtain)
    monkeypatch.setattr(selector, "count_multiprocessors", lambda index: MULTIPROCESSORS)
    selector.count_rows_at_once.cache_clear()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=STREAM))
    return device


def make_candidates(*shape: int) -> torch.Tensor:
    size = int(np.prod(shape))
    return torch.arange(size, dtype=torch.int32).reshape(*shape) * 3


def gather(candidates: torch.Tensor) -> np.ndarray:
    """Rank-major candidates as rows of all of them."""
    world_size, rows, length, _ = candidates.shape
    return candidates.permute(1, 0, 2, 3).reshape(rows, world_size * length, 2).numpy()


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("count", [1, 6, 7, 300])
def test_gathered_rows_are_read_from_one_buffer(device: Device, rows: int, count: int) -> None:
    candidates = make_candidates(rows, count, 2)
    out = torch.full((rows, 9), 7, dtype=torch.int32)[:, :4]
    assert select.select_candidates(candidates, 4, "torch", contract="set", out=out) is out
    (launch,) = device.launches
    assert np.array_equal(launch.found, candidates.numpy())
    assert (launch.k, launch.outputs) == (4, [out.data_ptr() + 36 * row for row in range(rows)])
    chosen = launch.specialization
    assert (chosen.sources, chosen.contract, chosen.paired) == ("one", "set", count % 2 == 0)
    assert (chosen.nan, chosen.zero) == (POLICIES["torch"].nan, POLICIES["torch"].zero)
    assert chosen.minimum_ctas == (1 if rows <= MULTIPROCESSORS else 8)


def test_a_buffer_off_its_alignment_is_not_read_in_pairs(device: Device) -> None:
    candidates = make_candidates(4 * 6 + 1, 2)[1:].view(4, 6, 2)
    select.select_candidates(candidates, 2)
    assert not device.launches[0].specialization.paired
    assert np.array_equal(device.launches[0].found, candidates.numpy())


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("length", [1, 2, 5, 6, 48])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_sources_of_an_all_gather_are_read_where_they_are(
    device: Device, world_size: int, length: int, rows: int
) -> None:
    candidates = make_candidates(world_size, rows, length, 2)
    select.select_candidates(candidates, 2, layout="rank-major")
    (launch,) = device.launches
    assert np.array_equal(launch.found, gather(candidates))
    chosen = launch.specialization
    follows = world_size == 1 or rows == 1
    assert chosen.sources == ("one" if follows else "strided")
    assert chosen.streamed == (length == 1 and not follows)
    assert chosen.paired == (length % 2 == 0)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("length", [1, 4, 5])
def test_peers_are_read_through_the_table(device: Device, length: int, aligned: bool) -> None:
    parts = [make_candidates(3, length, 2) + place for place in range(3)]
    addresses = torch.tensor([part.data_ptr() for part in parts])
    select.select_peer_candidates(addresses, 3, length, 2, aligned=aligned)
    (launch,) = device.launches
    assert np.array_equal(launch.found, gather(torch.stack(parts)))
    assert launch.specialization.sources == "peers"
    assert launch.specialization.paired == (aligned and length == 4)


@pytest.mark.parametrize("epoch", [-1, 4, 5])
@pytest.mark.parametrize("slots", [1, 2])
def test_an_inbox_is_read_in_the_slot_of_the_epoch(device: Device, slots: int, epoch: int) -> None:
    inbox = make_candidates(2, 5, 4 * 3, 2)
    state = torch.tensor([epoch, 0, 0, 0, 0, 0, 0, 0])
    out = torch.empty(3, 2, dtype=torch.int32)
    select.launch_select(
        inbox,
        out,
        count=12,
        source_candidates=3,
        source_words=6,
        row_words=24,
        policy=IEEE,
        contract="order",
        implementation="auto",
        state=state,
        slots=slots,
        slot_words=5 * 24,
    )
    (launch,) = device.launches
    assert np.array_equal(launch.found, inbox[(epoch + 1) % slots, :3].numpy())
    assert (launch.specialization.stateful, launch.specialization.sources) == (True, "one")


def test_no_candidates_leave_every_slot_unused(device: Device) -> None:
    out = torch.full((3, 5), 7, dtype=torch.int32)[:, 1:]
    select.select_candidates(torch.empty(3, 0, 2, dtype=torch.int32), 4, out=out)
    assert (out == -1).all()
    assert (out.as_strided((3, 1), (5, 1), 0) == 7).all()
    assert select.select_candidates(torch.empty(0, 8, 2, dtype=torch.int32), 4).shape == (0, 4)
    assert device.launches == []


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A machine with a GPU, no compiler and no kernels, and nothing remembered."""
    monkeypatch.setattr(kernel_store, "find_compiler", lambda: None)
    monkeypatch.setattr(kernel_store, "_known", {})
    monkeypatch.delenv("TIEBREAK_KERNELS", raising=False)
    for cached in (selector.obtain_selector, selector.device_architecture):
        cached.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    yield
    selector.device_architecture.cache_clear()


def test_a_selector_that_is_nowhere_is_refused_with_every_remedy(bare: None) -> None:
    with pytest.raises(MissingBackendError, match="for sm_90a is not compiled") as caught:
        selector.obtain_selector(choose(4096), 0)
    for remedy in ("pip install", "tiebreak build", "implementation='triton'"):
        assert remedy in str(caught.value)


def test_a_device_without_selectors_is_refused(bare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
    with pytest.raises(MissingBackendError, match=r"device 0 is '8.0'.*9.0, 10.0, 12.1; pass implementation='triton'"):
        selector.obtain_selector(choose(4096), 0)


def test_tensors_of_the_cpu_are_refused_by_name_only() -> None:
    candidates = make_candidates(1, 4, 2)
    with pytest.raises(MissingBackendError, match="implementation='triton'"):
        select.select_candidates(candidates, 2, implementation="cutedsl")
    assert select.select_candidates(candidates, 2).tolist() == [[21, 15]]


@pytest.mark.parametrize(
    ("implementation", "device", "chosen"),
    [
        ("auto", "cpu", "triton"),
        ("auto", "cuda", "cutedsl"),
        ("triton", "cuda", "triton"),
        ("cutedsl", "cuda:1", "cutedsl"),
    ],
)
def test_a_device_has_one_implementation(implementation: Any, device: str, chosen: str) -> None:
    assert select.resolve_implementation(implementation, torch.device(device)) == chosen


@pytest.mark.parametrize(
    ("contract", "implementation", "device", "refused"),
    [
        ("order", "auto", "cuda", True),
        ("set", "auto", "cuda", False),
        ("set", "triton", "cuda", True),
        ("set", "auto", "cpu", True),
    ],
)
def test_only_what_is_sorted_is_limited(contract: Any, implementation: Any, device: str, refused: bool) -> None:
    place = torch.device(device)
    select.check_selection(100_000, 8192, contract, implementation, place)
    select.check_selection(8192, 100_000, contract, implementation, place)
    if refused:
        with pytest.raises(InputError, match=r"min\(k, candidates\) is 8193; at most 8192 are sorted; lower k, or use"):
            select.check_selection(8193, 100_000, contract, implementation, place)
    else:
        select.check_selection(8193, 100_000, contract, implementation, place)


def test_rows_whose_positions_overflow_are_refused() -> None:
    select.check_selection(1, LARGEST_ROW, "set", "auto", torch.device("cuda"))
    with pytest.raises(InputError, match="candidates per row"):
        select.check_selection(1, LARGEST_ROW + 1, "set", "auto", torch.device("cuda"))


# -- kernels built ahead of time -------------------------------------------------------------------------------------


def test_standard_selectors_are_few_distinct_and_fit_every_target() -> None:
    standard = standard_specializations()
    assert len(standard) == len({each.name for each in standard}) <= 120
    assert max(each.shared_bytes for each in standard) <= SHARED_LIMIT
    representatives = [recipe.name for recipe in list_representatives("sm_121a") if recipe.name.startswith("select-")]
    assert set(representatives) <= {each.name for each in standard}
    assert 1 < len(representatives) <= 10


@pytest.mark.parametrize("contract", ["order", "set"])
@pytest.mark.parametrize("count", [4096, 8192, 16_384])
@pytest.mark.parametrize("rows", [16, 256])
def test_usual_calls_need_no_compiler(rows: int, count: int, contract: str) -> None:
    standard = standard_specializations()
    for k in (512, 1024, 2048, 4096):
        assert choose(count, rows, k, contract=contract, paired=True) in standard
    for sources, stateful in (("one", True), ("strided", True), ("strided", False), ("peers", False)):
        uses = {"sources": sources, "stateful": stateful, "paired": True, "source_candidates": 2048}
        assert choose(count, rows, contract=contract, **uses) in standard
    for preset in ("torch", "vllm-cutedsl", "vllm-triton"):
        assert choose(count, rows, policy=POLICIES[preset], paired=True) in standard


@given(CALLS, CALLS)
def test_names_tell_selectors_apart(first: dict[str, Any], second: dict[str, Any]) -> None:
    one, other = choose(**first), choose(**second)
    assert (one == other) == (one.name == other.name)
