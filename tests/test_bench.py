"""Benchmarks, without a GPU: inputs, checking, statistics, targets, tables, files, plots and the command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from tiebreak.bench import (
    checking,
    command,
    contenders,
    exactness,
    exchange,
    inputs,
    machine,
    merges,
    plot,
    selection,
    targets,
)
from tiebreak.bench.contenders import Contender, Launch
from tiebreak.bench.merges import Exchange
from tiebreak.bench.model import (
    EMPTY_KERNEL,
    PACKED_COPY,
    Document,
    Machine,
    Measurement,
    Method,
    Rejection,
    ReplayCount,
    Shape,
    decode_document,
    encode_document,
    read_document,
    write_document,
)
from tiebreak.bench.reference import select_by_sort
from tiebreak.bench.statistics import Statistics, summarise
from tiebreak.bench.table import print_document
from tiebreak.errors import InputError, MissingBackendError, SimulationError
from tiebreak.impl.merge import merge_topk
from tiebreak.sim.fabric import run_ranks
from tiebreak.spec.contracts import Contract
from tiebreak.spec.layout import Layout
from tiebreak.spec.packing import pack, unpack
from tiebreak.spec.selection import select

SMALL = Shape(rows=2, candidates=32, k=8)
RANKS = 4
SELECTORS = [contender for contender in contenders.SELECTORS if "cutedsl" not in contender.name]


def small_inputs(kind: str = "tie-heavy") -> list[inputs.InputSet]:
    return [inputs.draw_input(kind, SMALL, RANKS, seed) for seed in range(2)]


def launch(contender: Contender, drawn: list[inputs.InputSet]) -> list[Launch]:
    launches = [contender.prepare(torch.from_numpy(one.candidates), SMALL.k) for one in drawn]
    checking.poison_outputs(launches)
    return launches


def test_statistics_are_quantiles() -> None:
    samples = [float(value) for value in range(31)]
    assert summarise(samples[::-1]) == Statistics(median=15.0, p10=3.0, p90=27.0, count=31)
    found = summarise([4.0, 1.0, 2.5, 9.0])
    assert (found.median, found.p10, found.p90) == pytest.approx(np.quantile([4.0, 1.0, 2.5, 9.0], (0.5, 0.1, 0.9)))


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [-1.0]])
def test_no_statistics_of_what_is_no_time(samples: list[float]) -> None:
    with pytest.raises(InputError):
        summarise(samples)


@pytest.mark.parametrize("kind", inputs.KINDS)
def test_ids_are_those_of_a_striped_layout(kind: str) -> None:
    drawn = inputs.draw_input(kind, SMALL, RANKS, seed=1)
    layout = Layout(RANKS, inputs.INTERLEAVE)
    for row in unpack(drawn.candidates)[1]:
        assert len(set(row.tolist())) == SMALL.candidates
        owners = layout.owner(row).reshape(RANKS, -1)
        assert (owners == np.arange(RANKS)[:, None]).all()


def test_kinds_of_scores_are_what_they_say() -> None:
    shape = Shape(rows=4, candidates=1024, k=16)
    distinct = {
        kind: len(np.unique(unpack(inputs.draw_input(kind, shape, RANKS, seed=0).candidates)[0]))
        for kind in inputs.KINDS
    }
    assert distinct["tie-heavy"] == 16
    assert distinct["all-equal"] == 1
    assert distinct["random"] > 4000


def test_inputs_differ_by_seed_and_repeat() -> None:
    first, again, other = (inputs.draw_input("random", SMALL, RANKS, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.gathered, again.gathered)
    assert not np.array_equal(first.gathered, other.gathered)


def test_expected_output_is_that_of_the_specification() -> None:
    for drawn in small_inputs():
        assert np.array_equal(drawn.expected, select(*unpack(drawn.candidates), SMALL.k))


@pytest.mark.parametrize(
    ("candidates", "k", "ranks"), [(4096, 2048, 2), (16384, 2048, 8), (4096, 3000, 1)], ids=["2", "8", "1"]
)
def test_ranks_that_offer_k_candidates_each(candidates: int, k: int, ranks: int) -> None:
    assert inputs.natural_world_size(Shape(1, candidates, k)) == ranks


@pytest.mark.parametrize(
    "draw",
    [
        lambda: inputs.draw_input("sorted", SMALL, RANKS, 0),
        lambda: inputs.draw_input("random", SMALL, 5, 0),
        lambda: Shape(0, 64, 16),
        lambda: Shape(1, 64, 65),
        lambda: Method(samples=29),
        lambda: Method(sets=3),
        lambda: Method(launches=6),
        lambda: contenders.choose(["torch.median"]),
    ],
)
def test_bad_requests_are_input_errors(draw: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        draw()


@pytest.mark.parametrize("kind", inputs.KINDS)
@pytest.mark.parametrize("contender", SELECTORS + list(contenders.FLOORS[1:]), ids=lambda contender: contender.name)
def test_contenders_keep_their_contract_once_they_ran(contender: Contender, kind: str) -> None:
    drawn = small_inputs(kind)
    launches = launch(contender, drawn)
    assert checking.find_violation(launches, drawn, contender.contract)
    for one in launches:
        one.run()
    assert checking.find_violation(launches, drawn, contender.contract) == ""


def test_empty_kernel_launches() -> None:
    drawn = small_inputs()
    launches = launch(contenders.FLOORS[0], drawn)
    launches[0].run()
    assert checking.find_violation(launches, drawn, None) == ""


def test_set_contract_takes_any_order_and_no_other_id() -> None:
    (drawn, *_) = small_inputs()
    reversed_ids = np.ascontiguousarray(drawn.expected[:, ::-1])
    assert checking.explain_output(drawn, reversed_ids, Contract.SET) == ""
    assert "another order" in checking.explain_output(drawn, reversed_ids, Contract.ORDER)
    wrong = drawn.expected.copy()
    wrong[1, 0] = wrong[1, 1]
    reason = checking.explain_output(drawn, wrong, Contract.SET)
    assert "1 rows, first in row 1" in reason
    assert "missing" in reason


def arbitrary_ties(candidates: torch.Tensor, k: int) -> Launch:
    """Select by score alone, the last of the tied candidates first."""
    output = torch.empty((candidates.shape[0], k), dtype=torch.int32)

    def run() -> None:
        scores = candidates[..., 0].contiguous().view(torch.float32).flip(1)
        order = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :k]
        torch.gather(candidates[..., 1].flip(1).contiguous(), 1, order, out=output)

    return Launch(run, (output,))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replay by running, and time nothing; returns the names of what was done."""
    done: list[str] = []

    def replay(graphs: Any) -> None:
        done.append("replay")
        for one in graphs:
            one.run()

    def time(graphs: Any, method: Method) -> Statistics:
        done.append("time")
        return Statistics(2.0, 1.0, 3.0, method.samples)

    monkeypatch.setattr(selection, "capture_graphs", lambda launches, method: launches)
    monkeypatch.setattr(selection, "replay_once", replay)
    monkeypatch.setattr(selection, "time_graphs", time)
    return done


@pytest.mark.parametrize("ours", [True, False])
def test_wrong_contender_is_reported_and_not_timed(eager: list[str], ours: bool) -> None:
    drawn = small_inputs()
    gathered = [torch.from_numpy(one.candidates) for one in drawn]
    wrong = Contender("arbitrary", Contract.ORDER, ours, arbitrary_ties)
    result = selection.measure(wrong, SMALL, "tie-heavy", drawn, gathered, Method())
    assert isinstance(result, Rejection)
    assert "order broken" in result.reason
    assert eager == ["replay"]
    assert replace(document(), rejections=(result,)).exit_status == int(ours)


def test_right_contender_is_checked_before_it_is_timed(eager: list[str]) -> None:
    drawn = small_inputs()
    gathered = [torch.from_numpy(one.candidates) for one in drawn]
    result = selection.measure(SELECTORS[0], SMALL, "tie-heavy", drawn, gathered, Method())
    assert isinstance(result, Measurement)
    assert (result.contract, result.time.median) == ("order", 2.0)
    assert eager == ["replay", "time"]


def test_contender_that_raises_is_rejected_but_a_missing_package_is_an_error(eager: list[str]) -> None:
    def fail(candidates: torch.Tensor, k: int) -> Launch:
        raise RuntimeError("no such shape")

    def lack(candidates: torch.Tensor, k: int) -> Launch:
        raise MissingBackendError("a package")

    drawn = small_inputs()
    gathered = [torch.from_numpy(one.candidates) for one in drawn]
    result = selection.measure(
        Contender("failing", Contract.SET, True, fail), SMALL, "random", drawn, gathered, Method()
    )
    assert isinstance(result, Rejection)
    assert result.reason == "RuntimeError: no such shape"
    with pytest.raises(MissingBackendError):
        selection.measure(Contender("lacking", Contract.SET, True, lack), SMALL, "random", drawn, gathered, Method())


@pytest.mark.parametrize("replay", range(4))
def test_fresh_data_is_valid_and_its_sort_is_the_specification(replay: int) -> None:
    rows, offered = 3, 40
    data = exactness.FreshData(2, offered, torch.device("cpu"), seed=5)
    scores, indices = data.draw_scores(rows, replay), data.draw_indices(rows)
    candidates = data.pack(scores, indices)
    layout = Layout(2, inputs.INTERLEAVE)
    shards = [pack(scores[rank].numpy(), indices[rank].numpy(), rank, layout) for rank in range(2)]
    scored, ids = unpack(np.concatenate(shards, axis=1))
    assert np.array_equal(candidates.numpy()[..., 1], ids)
    expected = select_by_sort(candidates, 2 * offered)
    assert np.array_equal(expected.numpy(), select(scored, ids, 2 * offered))
    for row in ids:
        valid = row[row >= 0]
        assert len(set(valid.tolist())) == len(valid) > 0


def test_fresh_data_is_equal_on_every_rank_and_new_in_every_replay() -> None:
    first, second = (exactness.FreshData(2, 8, torch.device("cpu"), seed=1) for _ in range(2))
    drawn = [data.draw_scores(2, 0) for data in (first, second, first)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_reference_is_held_to_the_specification() -> None:
    candidates = torch.from_numpy(small_inputs()[0].candidates)
    expected = select_by_sort(candidates, SMALL.k)
    exactness._check_reference(candidates, expected)
    with pytest.raises(SimulationError):
        exactness._check_reference(candidates, expected.flip(1))


def test_exact_means_every_slot_or_every_id() -> None:
    expected = torch.tensor([[3, 1, -1], [2, 0, 5]], dtype=torch.int32)
    moved = torch.tensor([[1, 3, -1], [2, 0, 5]], dtype=torch.int32)
    wrong = torch.tensor([[3, 1, -1], [2, 0, 4]], dtype=torch.int32)
    assert exactness._is_exact(expected, expected, ordered=True)
    assert not exactness._is_exact(moved, expected, ordered=True)
    assert exactness._is_exact(moved, expected, ordered=False)
    assert not exactness._is_exact(wrong, expected, ordered=False)


def test_every_rank_reports_the_same_checked_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    def time(graphs: Any, method: Method, meet: Callable[[], list[Any]]) -> Statistics:
        return Statistics(float(len(meet())), 1.0, 3.0, method.samples)

    def run(fabric: Any) -> list[Measurement | Rejection]:
        return list(exchange.run_exchange(fabric, [shape], ["tie-heavy"], chosen, Method()))

    def run_all(graphs: Any) -> None:
        for one in graphs:
            one.run()

    monkeypatch.setattr(exchange, "capture_graphs", lambda launches, method: launches)
    monkeypatch.setattr(exchange, "replay_once", run_all)
    monkeypatch.setattr(exchange, "time_graphs", time)
    shape = Shape(rows=1, candidates=8, k=4)
    chosen = [*merges.exchanges(["tiebreak alternating triton"]), Exchange("silent", Contract.SET, True, open_silent)]
    first, second = run_ranks(run, 2)
    assert first == second
    names = [EMPTY_KERNEL, PACKED_COPY, "NCCL all-gather", "push copy", "tiebreak alternating triton", "silent"]
    assert [result.contender for result in first] == names
    assert [result.time.median for result in first[:-1]] == [2.0] * 5
    assert isinstance(first[-1], Rejection)
    assert "rank 0: input set 0: set broken" in first[-1].reason
    assert "rank 1: input set 0: set broken" in first[-1].reason


@contextmanager
def open_silent(fabric: Any, shape: Shape) -> Iterator[merges.Prepare]:
    """Write nothing."""

    def prepare(ranked: list[merges.RankInput]) -> list[Launch]:
        return [Launch(lambda: None, (torch.empty((shape.rows, shape.k), dtype=torch.int32),)) for _ in ranked]

    yield prepare


@pytest.mark.parametrize("name", merges.merge_options())
def test_every_merge_has_a_valid_geometry(name: str) -> None:
    (options,) = merges.choose_merges([name]).values()
    merges.merge_geometry(options, Shape(16, 4096, 2048), 16, 2).validate(2)


def test_merges_in_one_launch_are_contenders_under_both_contracts() -> None:
    names = ["tiebreak fused order", "tiebreak fused set"]
    chosen = {merge.name: merge.contract for merge in merges.exchanges(names) if merge.ours}
    assert chosen == {names[0]: Contract.ORDER, names[1]: Contract.SET}
    for name, options in merges.choose_merges(names).items():
        geometry = merges.merge_geometry(options, Shape(16, 4096, 2048), 16, 2)
        assert (geometry.launches, geometry.implementation) == ("fused", "cutedsl")
        assert geometry.contract == chosen[name].value


def test_unknown_merge_is_an_input_error() -> None:
    with pytest.raises(InputError):
        merges.exchanges(["tiebreak by mail"])


class EagerMerge:
    """Stands in for the graph of a merge, and spoils some outputs."""

    def __init__(self, fabric: Any, launch: Callable[[], torch.Tensor], spoilt: set[int]) -> None:
        self.fabric, self.launch, self.spoilt, self.replays = fabric, launch, spoilt, 0

    def replay(self) -> None:
        output = self.launch()
        self.fabric.synchronize()
        if self.replays in self.spoilt:
            output[0, 0] += 1
        self.replays += 1


def test_replays_are_counted_exact_on_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(workspace: Any, data: exactness.FreshData, shape: Shape) -> exactness.CapturedMerge:
        rank = workspace.fabric.rank
        scores, indices = data.draw_scores(shape.rows, 0)[rank].clone(), data.draw_indices(shape.rows)[rank].clone()
        output = torch.empty((shape.rows, shape.k), dtype=torch.int32)
        launch = partial(merge_topk, workspace, scores, indices, out=output)
        return exactness.CapturedMerge(
            EagerMerge(workspace.fabric, launch, {1} if rank == 1 else set()), scores, indices, output
        )

    def run(fabric: Any) -> list[ReplayCount]:
        (options,) = merges.choose_merges(["tiebreak alternating triton"]).values()
        shapes = [Shape(rows, 8, 4) for rows in (1, 2)]
        return exactness.count_exact_replays(fabric, "merge", options, shapes, replays=6, seed=0)

    monkeypatch.setattr(exactness, "_capture", capture)
    monkeypatch.setattr(exactness, "delay_stream", lambda cycles: None)
    first, second = run_ranks(run, 2)
    assert first == second == [ReplayCount("merge", 0, 2, 6, 6), ReplayCount("merge", 1, 2, 4, 6)]


def measurement(contender: str, median: float, kind: str = "random", **changes: Any) -> Measurement:
    ours = contender.startswith("tiebreak")
    time = Statistics(median, 0.9 * median, 1.1 * median, 40)
    shape = Shape(16, 8192, 2048)
    made = Measurement("select", contender, "order" if ours else "-", ours, kind, shape, 1, time)
    return replace(made, **changes)


def document() -> Document:
    measured = (
        measurement(EMPTY_KERNEL, 1.25),
        measurement(PACKED_COPY, 2.0),
        measurement("tiebreak cutedsl order", 6.0),
        measurement("tiebreak cutedsl set", 4.0, contract="set"),
        measurement("tiebreak triton order", 60.0),
        measurement(EMPTY_KERNEL, 1.25, "tie-heavy"),
        measurement("tiebreak cutedsl order", 7.5, "tie-heavy"),
        measurement("tiebreak cutedsl set", 5.0, "tie-heavy", contract="set"),
        measurement("tiebreak cutedsl order", 8.1, "all-equal"),
        measurement("tiebreak cutedsl set", 5.4, "all-equal", contract="set"),
    )
    rejected = Rejection("select", "torch.topk", False, "tie-heavy", Shape(16, 8192, 2048), "set broken")
    device = Machine("H200", 2, "580.1", 1980, 3201, {"torch": "2.11", "nvidia-cutlass-dsl": None}, None, "2026-01-01")
    counts = (ReplayCount("tiebreak all-gather triton", 0, 2, 10_000, 10_000),)
    return Document(device, Method(), measured, (rejected,), counts)


def test_document_survives_json() -> None:
    text = encode_document(document())
    assert decode_document(text) == document()
    assert json.loads(text)["measurements"][2]["time"]["median"] == 6.0
    assert decode_document(encode_document(replace(document(), method=None))).method is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.pop("machine"),
        lambda data: data.update(schema_version=0),
        lambda data: data["measurements"][0].pop("time"),
        lambda data: data["measurements"][0].update(speed=1),
    ],
)
def test_damaged_document_is_an_input_error(damage: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(encode_document(document()))
    damage(data)
    with pytest.raises(InputError):
        decode_document(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_what_is_no_document_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError):
        decode_document(text)


def test_document_file(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    write_document(document(), path)
    assert read_document(path) == document()
    with pytest.raises(InputError):
        write_document(document(), tmp_path / "missing" / "times.json")
    with pytest.raises(InputError):
        read_document(tmp_path / "other.json")


def test_targets_are_those_of_the_shapes_that_were_measured() -> None:
    verdicts = targets.judge(document())
    assert [(verdict.contender, verdict.passed) for verdict in verdicts] == [
        ("tiebreak cutedsl set", True),
        ("tiebreak cutedsl set", True),
        ("tiebreak cutedsl set", False),
        ("tiebreak all-gather triton", True),
    ]
    assert verdicts[0].measured == "4.00 us, 3.20 x empty"
    assert [verdict.measured for verdict in verdicts[1:3]] == ["1.25 x random", "1.35 x random"]


def test_targets_hold_for_the_fastest_of_this_package_whose_order_is_deterministic() -> None:
    def judged(*measured: Measurement) -> list[str]:
        return [verdict.contender for verdict in targets.judge(replace(document(), measurements=measured, replays=()))]

    order, positional = measurement("tiebreak order", 6.0), measurement("tiebreak set", 4.0, contract="set")
    others = (
        measurement("torch.topk", 1.0, contract="order"),
        measurement("library", 1.0, contract="set"),
        measurement("tiebreak values", 1.0, contract="values"),
    )
    assert judged(order, positional, *others) == ["tiebreak set"]
    assert judged(order, replace(positional, time=summarise([7.0])), *others) == ["tiebreak order"]
    assert judged(*others) == []


def test_either_limit_of_a_target_is_enough() -> None:
    by_time = Document(document().machine, Method(), (measurement("tiebreak cutedsl order", 5.0),))
    assert [verdict.passed for verdict in targets.judge(by_time)] == [True]
    slower_clock = (measurement(EMPTY_KERNEL, 1.5), measurement("tiebreak cutedsl order", 6.5))
    assert [verdict.passed for verdict in targets.judge(replace(by_time, measurements=slower_clock))] == [True]
    slow = (measurement(EMPTY_KERNEL, 1.0), measurement("tiebreak cutedsl order", 6.5))
    assert [verdict.passed for verdict in targets.judge(replace(by_time, measurements=slow))] == [False]


def test_exchange_is_judged_on_two_ranks_only() -> None:
    shape = Shape(64, 4096, 2048)
    measured = measurement("tiebreak symmetric", 9.9, benchmark="exchange", shape=shape, ranks=2)
    run = Document(document().machine, Method(), (measured,))
    assert [verdict.passed for verdict in targets.judge(run)] == [True]
    assert targets.judge(replace(run, measurements=(replace(measured, ranks=4),))) == []


def test_replays_are_judged_by_number_and_exactness() -> None:
    def verdict(exact: int, total: int) -> bool:
        run = Document(document().machine, None, replays=(ReplayCount("merge", 1, 2, exact, total),))
        (found,) = targets.judge(run)
        return found.passed

    assert verdict(10_000, 10_000)
    assert not verdict(9_999, 10_000)
    assert not verdict(500, 500)


def test_inexact_replay_is_a_failure() -> None:
    run = replace(document(), replays=(ReplayCount("merge", 1, 2, 9_999, 10_000),))
    assert (document().exit_status, run.exit_status) == (0, 1)


def test_table_shows_ratios_rejections_and_targets() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    print_document(document(), console)
    lines = [" ".join(line.split()) for line in console.export_text().replace("│", " ").splitlines()]
    assert "tiebreak cutedsl order order 6.00 5.40 6.60 4.80 3.00" in lines
    assert "16 x 8192, K 2048 all-equal tiebreak cutedsl order order 8.10 7.29 8.91 - - 1.35" in lines
    text = "\n".join(lines)
    assert "torch.topk not timed on 16 x 8192, K 2048, tie-heavy: set broken" in text
    assert "80 launches" in text and "driver 580.1" in text
    assert "5.0 us or 4.4 x empty 4.00 us, 3.20 x empty pass" in text
    assert "all-equal tiebreak cutedsl set 1.3 x random 1.35 x random fail" in text


def test_method_says_what_a_time_includes() -> None:
    assert "80 launches" in Method().describe()
    assert "latency of a graph launch" in Method(launches=1).describe()


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_plot_of_a_stored_run(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    file, image = tmp_path / "times.json", tmp_path / f"times.{suffix}"
    write_document(document(), file)
    command.app(["show", str(file), "--plot", str(image)], standalone_mode=False)
    assert image.stat().st_size > 1000
    assert "Targets" in capsys.readouterr().out


def test_plot_needs_measurements_matplotlib_and_a_known_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError):
        plot.write_plot(replace(document(), measurements=()), tmp_path / "times.svg")
    with pytest.raises(InputError):
        plot.write_plot(document(), tmp_path / "times.xyz")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingBackendError, match=r"tiebreak\[bench\]"):
        plot.write_plot(document(), tmp_path / "times.svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "0"], "rows is 0"),
        (["select", "--launches", "7"], "launches is 7"),
        (["exchange", "--samples", "3"], "samples is 3"),
        (["--kind", "sorted"], "kind of input is 'sorted'"),
        (["replay", "--output", "/no/such/folder/x.json"], "output is '/no/such/folder/x.json'"),
        (["--plot", "times.xyz"], "suffix of the plot is '.xyz'"),
        (["show", "/no/such/file"], "benchmark file is '/no/such/file'"),
    ],
)
def test_bad_options_are_input_errors(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        command.app(arguments, standalone_mode=False)


@pytest.mark.parametrize("name", ["select", "exchange", "replay"])
def test_a_missing_gpu_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingBackendError, match="a CUDA device"):
        command.app([name], standalone_mode=False)


def test_exchange_outside_of_torchrun_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(InputError, match=r"torch\.distributed\.run"):
        command.app(["exchange"], standalone_mode=False)


@pytest.mark.parametrize("arguments", [["tiebreak", "bench"], ["tiebreak.bench"]])
def test_bench_is_a_command_and_a_module(arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "CUDA_VISIBLE_DEVICES": ""}
    program = [sys.executable, "-m", *arguments]
    result = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 2, result.stdout
    assert result.stderr.startswith("tiebreak: a CUDA device; torch sees none")


def test_benchmarks_need_neither_the_simulator_nor_report_packages() -> None:
    modules = "command, contenders, exactness, exchange, merges, selection, timing"
    program = f"""
import sys
for name in ("msgspec", "greenlet", "hypothesis", "matplotlib", "jinja2", "safetensors", "cutlass"):
    sys.modules[name] = None
from tiebreak.bench import {modules}
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_progress_is_kept_when_a_run_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "describe_machine", lambda count, start: document().machine)
    path = tmp_path / "times.json"

    def results() -> Any:
        yield measurement(EMPTY_KERNEL, 1.0)
        yield measurement(EMPTY_KERNEL, 1.0, shape=Shape(64, 8192, 2048))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        command._collect(results(), Method(), 1, path, shows=False)
    assert read_document(path).measurements == (measurement(EMPTY_KERNEL, 1.0),)


def test_versions_and_commit_of_this_checkout() -> None:
    versions = machine.collect_versions(torch)
    assert versions["torch"] == torch.__version__
    assert versions["nccl"] is None
    assert machine.query_driver("GPU-none") == (None, None, None)
