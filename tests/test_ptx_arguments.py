"""Arguments of launches on the PTX machine, as text and as values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tiebreak.errors import InputError
from tiebreak.ptx.arguments import Placed, parse_argument, place, save_arguments
from tiebreak.ptx.command import parse_arguments, parse_shape
from tiebreak.ptx.parameters import check_arguments, pack_argument
from tiebreak.sim.ptx.module import Kernel, Parameter


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("-1", -1), ("0x10", 16), ("1.5", 1.5), ("-inf", -np.inf), ("True", True), ("None", None)],
)
def test_numbers(text: str, value: object) -> None:
    parsed = parse_argument(text)
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zeros:int32:2x3", np.zeros((2, 3), np.int32)),
        ("full:-1:int32:4", np.full(4, -1, np.int32)),
        ("full:0.5:float32:1x2", np.full((1, 2), 0.5, np.float32)),
        ("full:0xFF:uint8:2", np.full(2, 255, np.uint8)),
        ("arange:int64:2x2", np.arange(4).reshape(2, 2)),
        ("empty:float32:3", np.zeros(3, np.float32)),
    ],
)
def test_arrays(text: str, expected: np.ndarray) -> None:
    placed = parse_argument(text)
    assert isinstance(placed, Placed)
    assert placed.array.dtype == expected.dtype
    assert placed.array.tolist() == expected.tolist()
    assert placed.initialised == (not text.startswith("empty"))


def test_random_arrays_follow_their_seed() -> None:
    texts = ["random:float32:64", "random:float32:64:0", "random:float32:64:1", "random:int32:64"]
    arrays = [parsed.array for parsed in map(parse_argument, texts) if isinstance(parsed, Placed)]
    assert (arrays[0] == arrays[1]).all() and not (arrays[0] == arrays[2]).all()
    assert arrays[3].dtype == np.int32 and (arrays[3] < 0).any()


def test_files_and_tables_of_addresses(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(8, dtype=np.int32))
    placed = parse_argument(f"{tmp_path}/a.npy@8")
    table = parse_argument(f"table:{tmp_path}/a.npy,{tmp_path}/a.npy@8")
    assert isinstance(placed, Placed) and isinstance(table, Placed)
    assert placed.address == placed.array.ctypes.data + 8
    assert table.array.tolist() == [each.address for each in table.addressed]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "zeros:int32",
        "zeros:int33:4",
        "zeros:5:int32:4",
        "full:300:uint8:2",
        "absent.npy",
        "table:5",
        "full:x:int32:1",
    ],
)
def test_text_that_states_no_argument(text: str) -> None:
    with pytest.raises(InputError):
        parse_argument(text)


def test_arguments_by_position_and_by_name() -> None:
    positional, named = parse_arguments("1 size=16 'full:-1:int32:2' flag=True")
    assert positional[0] == 1 and isinstance(positional[1], Placed)
    assert named == {"size": 16, "flag": True}
    assert parse_shape("4,1,2", "grid") == (4, 1, 2)
    with pytest.raises(InputError, match="grid"):
        parse_shape("4x2", "grid")


def test_values_of_a_python_launch() -> None:
    tensor, array = torch.zeros(4, 4), np.zeros((4, 4))
    for value, pointer in ((tensor[1:, 2], tensor[1:, 2].data_ptr()), (array[1:, 2], array[1:, 2].ctypes.data)):
        placed = place(value, "x")
        assert isinstance(placed, Placed)
        assert placed.address == pointer and placed.array.nbytes == value.nbytes // 3 * 16
    whole, bits = place(tensor, "x"), place(tensor.bfloat16(), "x")
    assert isinstance(whole, Placed) and isinstance(bits, Placed)
    assert (whole.array.dtype, whole.array.shape) == (np.float32, (4, 4))
    assert (bits.array.dtype, bits.array.shape) == (np.uint8, (32,)), "NumPy has no such type"
    assert place(np.int32(5), "x") == 5 and place(np.float32(0.5), "x") == 0.5
    with pytest.raises(InputError, match="argument x"):
        place("text", "x")
    with pytest.raises(InputError, match="argument x"):
        place(torch.zeros(1, device="meta"), "x")


def test_saved_arguments_give_the_same_memory_again(tmp_path: Path) -> None:
    array, other = np.arange(6, dtype=np.int32), np.ones(2, np.float32)
    table = Placed(np.zeros(2, np.int64), addressed=(Placed(array, 4), Placed(other)))
    texts = save_arguments(tmp_path / "new", [Placed(array), 5, Placed(array, 8), table, True])
    assert len(list((tmp_path / "new").iterdir())) == 2, "each memory is saved once"
    again = [parse_argument(text) for text in texts]
    assert again[1] == 5 and again[4] is True
    first, third, fourth = again[0], again[2], again[3]
    assert isinstance(first, Placed) and isinstance(third, Placed) and isinstance(fourth, Placed)
    assert first.array.tolist() == third.array.tolist() == array.tolist() and third.offset == 8
    assert [part.offset for part in fourth.addressed] == [4, 0]


def parameter(kind: str, size: int) -> Parameter:
    return Parameter("x", kind, size, size, 0)


def test_bits_of_parameters() -> None:
    placed = Placed(np.zeros(4, np.int32), 8)
    assert pack_argument(parameter("u64", 8), placed) == placed.address
    assert pack_argument(parameter("u32", 4), -1) == 2**32 - 1
    assert pack_argument(parameter("b64", 8), 2**64 - 1) == 2**64 - 1
    assert pack_argument(parameter("f32", 4), 1) == 0x3F800000
    assert pack_argument(parameter("f64", 8), -1.0) == 0xBFF << 52
    assert pack_argument(parameter("u8", 1), True) == 1


@pytest.mark.parametrize(
    ("kind", "size", "value"),
    [
        ("u32", 4, 2**32),
        ("u32", 4, -(2**31) - 1),
        ("u32", 4, 1.5),
        ("u32", 4, Placed(np.zeros(1))),
        ("u64", 8, None),
        ("f32", 4, None),
    ],
)
def test_arguments_that_do_not_fit(kind: str, size: int, value: object) -> None:
    with pytest.raises(InputError, match=f"argument x.*\\.{kind}"):
        pack_argument(parameter(kind, size), value)  # type: ignore[arg-type]


def test_every_parameter_needs_an_argument() -> None:
    kernel = Kernel("k", (parameter("u32", 4),), {}, (), (), {})
    check_arguments(kernel, [1])
    with pytest.raises(InputError, match=r"k is 2; it takes x \(u32\)"):
        check_arguments(kernel, [1, 2])
