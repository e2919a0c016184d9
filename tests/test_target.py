"""Targets: the smallest failing input is found, replays from its token, and a correct selector passes."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tiebreak.errors import InputError
from tiebreak.inputs.captured import CapturedInput
from tiebreak.spec.contracts import Contract
from tiebreak.spec.order import PRESETS
from tiebreak.spec.selection import select
from tiebreak.target.adapters import ADAPTERS, torch_topk
from tiebreak.target.examples import target_inputs
from tiebreak.target.job import run_target
from tiebreak.target.loading import Target, load_target
from tiebreak.target.record import target_cell
from tiebreak.target.reduction import reduce_input
from tiebreak.target.search import TargetFinding, replay_target, verify_target
from tiebreak.target.tokens import TargetInput, decode_input, encode_input

TINY = CapturedInput(
    name="tiny",
    form="scores",
    scores=np.zeros((1, 3), dtype=np.float32),
    ids=np.arange(3, dtype=np.int32)[None],
    lengths=np.array([3], dtype=np.int32),
    metadata={},
)


def exact(preset: str) -> Target:
    def selector(scores: torch.Tensor, ids: torch.Tensor, k: int) -> Any:
        return select(scores.numpy()[None], ids.numpy()[None], k, preset)[0]

    return selector


def finding_of(target: Target, contract: Contract = Contract.SET, preset: str = "ieee") -> TargetFinding:
    report = verify_target(target, contract, preset, seed=1, captured=TINY)
    assert report.finding is not None
    return report.finding


@pytest.mark.parametrize("preset", PRESETS)
def test_exact_selector_keeps_every_contract(preset: str) -> None:
    report = verify_target(exact(preset), Contract.ORDER, preset, max_examples=200, captured=TINY)
    assert report.finding is None
    assert report.inputs == report.executions == 203
    assert (report.captured, report.captured_failures) == (3, 0)


@pytest.mark.parametrize("stated", PRESETS)
@pytest.mark.parametrize("kept", PRESETS)
def test_selector_of_another_order_is_found(kept: str, stated: str) -> None:
    same = (PRESETS[kept].nan, PRESETS[kept].zero) == (PRESETS[stated].nan, PRESETS[stated].zero)
    if same and PRESETS[kept].id_limit < PRESETS[stated].id_limit:
        assert finding_of(exact(kept), preset=stated).property == "exception"
    else:
        report = verify_target(exact(kept), Contract.SET, stated, max_examples=200, captured=TINY)
        assert (report.finding is None) == same


@pytest.mark.parametrize("returned", [lambda row: row, lambda row: row.tolist(), torch.from_numpy, np.int64])
def test_output_may_be_array_list_or_tensor(returned: Callable[[Any], Any]) -> None:
    target = exact("ieee")
    report = verify_target(
        lambda *arguments: returned(target(*arguments)), Contract.ORDER, max_examples=30, captured=TINY
    )
    assert report.finding is None


def test_torch_topk_fails_on_a_tie_of_two() -> None:
    finding = finding_of(load_target("torch:topk"), Contract.SET, "torch")
    assert finding.property == "set"
    assert finding.token == "k=1;3f800000:1,3f800000:0"


def test_torch_topk_keeps_values_under_its_own_preset() -> None:
    report = verify_target(torch_topk, Contract.VALUES, "torch", max_examples=200, captured=TINY)
    assert report.finding is None


def test_torch_topk_puts_nan_first() -> None:
    finding = finding_of(torch_topk, Contract.VALUES, "ieee")
    assert len(finding.example.ids) == 2
    assert np.isnan(finding.example.scores).sum() == 1


def test_torch_topk_fails_on_the_plateau_of_the_real_scores() -> None:
    report = verify_target(torch_topk, Contract.SET, "torch", max_examples=1)
    assert report.captured == 96
    assert report.captured_failures > 10


def test_order_contract_finds_unsorted_output() -> None:
    finding = finding_of(lambda *arguments: exact("ieee")(*arguments)[::-1].copy(), Contract.ORDER)
    assert (len(finding.example.ids), finding.example.k) in {(2, 2), (1, 2)}


DEFECTS: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor, int], Any], str, str]] = {
    "raises": (lambda scores, ids, k: 1 // 0, "exception", "ZeroDivisionError"),
    "none": (lambda scores, ids, k: None, "form", r"shape \(\)"),
    "ragged": (lambda scores, ids, k: [[0], [0, 1]], "form", "no array of ids"),
    "floats": (lambda scores, ids, k: torch.zeros(k), "form", "dtype float32"),
    "two axes": (lambda scores, ids, k: ids[None, :k], "form", "shape"),
    "too few": (lambda scores, ids, k: ids[: k - 1], "form", "shape"),
    "too wide": (lambda scores, ids, k: [2**40] * k, "form", "does not fit int32"),
    "foreign id": (lambda scores, ids, k: [123] * k, "set", "unexpected"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_defective_output_is_a_finding(name: str) -> None:
    target, broken, message = DEFECTS[name]
    finding = finding_of(target)
    assert finding.property == broken
    assert re.search(message, finding.message)
    assert len(finding.example.ids) == finding.example.k == 1


def test_inconsistent_target_is_still_a_finding() -> None:
    calls = itertools.count()

    def target(scores: torch.Tensor, ids: torch.Tensor, k: int) -> Any:
        return exact("ieee")(scores, ids, k) if next(calls) % 7 else [-7] * k

    assert finding_of(target).property == "set"


def test_target_may_overwrite_its_arguments() -> None:
    def target(scores: torch.Tensor, ids: torch.Tensor, k: int) -> Any:
        output = exact("ieee")(scores, ids, k)
        scores.fill_(0)
        ids.fill_(0)
        return output

    assert verify_target(target, Contract.ORDER, max_examples=50, captured=TINY).finding is None


def test_same_seed_gives_the_same_report() -> None:
    reports = [verify_target(torch_topk, Contract.ORDER, "ieee", seed=5, captured=TINY) for _ in range(2)]
    counts = {(report.executions, report.inputs, report.finding and report.finding.token) for report in reports}
    assert len(counts) == 1


def test_token_of_a_finding_replays_it() -> None:
    finding = finding_of(torch_topk)
    report = replay_target(torch_topk, decode_input(finding.token), Contract.SET, "ieee")
    assert report.finding is not None
    assert report.finding.message == finding.message
    assert replay_target(exact("ieee"), decode_input(finding.token), Contract.SET, "ieee").finding is None


def test_cell_of_a_finding_carries_a_replay_command() -> None:
    report = verify_target(torch_topk, Contract.SET, "torch", seed=1, captured=TINY)
    cell = target_cell("torch:topk", Contract.SET, "torch", report, 1.5)
    assert (cell.property, cell.backend, cell.result, cell.inputs) == ("set", "torch:topk", "failed", report.inputs)
    words = shlex.split(cell.failures[0].replay)
    assert words[:4] == ["tiebreak", "verify", "--target", "torch:topk"]
    assert decode_input(words[-1]).ids.tolist() == [1, 0]
    assert "k = 1 of [(1.0, id 1), (1.0, id 0)]" in cell.failures[0].message


def test_cell_of_a_clean_target_has_no_failures() -> None:
    report = verify_target(exact("ieee"), Contract.SET, max_examples=20, captured=TINY)
    cell = target_cell("exact", Contract.SET, "ieee", report, 0.0)
    assert (cell.result, cell.failures, cell.inputs) == ("passed", (), 23)


def test_replay_command_reproduces_its_finding() -> None:
    found = run_target("torch:topk", "set", "torch", captured=TINY)
    words = shlex.split(found.failures[0].replay)
    options = dict(zip(words[2::2], words[3::2], strict=True))
    again = run_target(
        options["--target"], options["--contract"], options["--preset"], replay_input=options["--replay-input"]
    )
    assert (again.executions, again.result) == (1, "failed")
    assert again.failures[0].replay == found.failures[0].replay


def test_unknown_contract_is_an_input_error() -> None:
    with pytest.raises(InputError, match="must be one of values, set, order"):
        run_target("torch:topk", "sorted")


def test_failure_on_captured_input_only_is_reduced() -> None:
    def target(scores: torch.Tensor, ids: torch.Tensor, k: int) -> Any:
        output = exact("ieee")(scores, ids, k)
        return output[::-1].copy() - 1 if {333, 2000} <= set(ids.tolist()) else output

    report = verify_target(target, Contract.SET, max_examples=20)
    assert report.finding is not None
    assert sorted(report.finding.example.ids.tolist()) == [333, 2000]
    assert report.finding.example.k == 1


def test_reduction_stops_at_its_attempts() -> None:
    seen: list[TargetInput] = []
    start = TargetInput(np.zeros(64, dtype=np.float32), np.arange(64, dtype=np.int32), 64)
    reduce_input(start, lambda example: bool(seen.append(example)), attempts=9)
    assert len(seen) == 9


@given(target_inputs(PRESETS["vllm-triton"]))
def test_token_round_trips(example: TargetInput) -> None:
    decoded = decode_input(encode_input(example))
    assert decoded.k == example.k
    assert decoded.scores.view(np.uint32).tolist() == example.scores.view(np.uint32).tolist()
    assert decoded.ids.tolist() == example.ids.tolist()


def test_token_of_no_candidates() -> None:
    decoded = decode_input("k=3;")
    assert (decoded.k, decoded.scores.dtype, decoded.ids.tolist()) == (3, np.float32, [])


@pytest.mark.parametrize(
    "token",
    [
        "",
        "k=1",
        "1;3f800000:0",
        "k=-1;3f800000:0",
        "k=01;",
        "k=1;3f80:0",
        "k=1;3F800000:0",
        "k=1;3f800000:0,",
        "k=1;x:0",
    ],
)
def test_malformed_token_is_an_input_error(token: str) -> None:
    with pytest.raises(InputError, match="must be k=K;BITS:ID"):
        decode_input(token)


@pytest.mark.parametrize("number", [-2, 2**31])
def test_token_with_an_id_out_of_range(number: int) -> None:
    with pytest.raises(InputError, match="id in the replay input"):
        decode_input(f"k=1;3f800000:{number}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch", "must be module:attribute"),
        (":topk", "must be module:attribute"),
        ("torch:", "must be module:attribute"),
        ("no_such_module:f", "cannot be imported: ModuleNotFoundError"),
        ("torch:no_such_function", "there is no no_such_function"),
        ("torch:Tensor.no_such_method", "there is no no_such_method"),
        ("torch:float32", "must be callable"),
    ],
)
def test_unusable_target_is_an_input_error(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_target(name)


def test_target_may_be_dotted_or_an_adapter() -> None:
    assert load_target("torch:Tensor.topk") is torch.Tensor.topk
    assert load_target("torch:topk") is torch_topk
    assert all(callable(load_target(name)) for name in ADAPTERS)


@given(st.data())
def test_adapter_ignores_padding_and_fills_slots(data: st.DataObject) -> None:
    example = data.draw(target_inputs(PRESETS["torch"]))
    output = torch_topk(torch.from_numpy(example.scores), torch.from_numpy(example.ids), example.k)
    valid = int((example.ids >= 0).sum())
    assert int((output >= 0).sum()) == min(example.k, valid)
