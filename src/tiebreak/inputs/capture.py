"""Capture indexer scores of a real model over real text.

Run ``python -m tiebreak.inputs.capture OUTPUT.npz``.  The score of token s for
the query at token t is that of the DeepSeek-V3.2 lightning indexer::

    score(t, s) = sum over heads h of  weight_h(t) * ReLU(q_h(t) . k_h(s))

with every factor a linear form of real hidden states under published weights:

- ``q_h`` and ``k_h``: the query and key projections, biases included, of one
  attention layer of all-MiniLM-L6-v2; every head has its own key (the model is
  not multi-query), and no scale is applied, as it would not change the order.
- ``weight_h``: the mean of the head's value projection at t.  The indexer's
  own weights are one number per head, linear in the hidden state and of either
  sign; so is this mean.

What makes such scores hard is that they are exactly 0.0 wherever every head's
dot product is negative.  Those columns form a plateau of ties, and a selection
whose cut-off falls on the plateau depends on the tie-break alone.

Rows are causal: the row of token t has length t + 1.  Columns past the length
hold real scores too, so a selector that ignores the length is found out.

Sources: DeepSeek-AI, "DeepSeek-V3.2" (2025), section 2.1; text: the topics of
``pydoc``, part of the Python standard library (PSF licence).
"""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from tiebreak.inputs.minilm import PACKAGE, MiniLM, find_model

LAYER = 2
"""Layer whose projections are used; of the six, the one with most zeros in its longest plateau."""


def real_text() -> str:
    """Text of all topics of ``pydoc``, in the order of their names."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def indexer_scores(model: MiniLM, tokens: list[int], positions: list[int]) -> NDArray[np.float32]:
    """Scores of every token for the queries at some positions.

    Args:
        model: Encoder with its weights.
        tokens: Token ids of the text.
        positions: Token index of each query.

    Returns:
        float32[len(positions), len(tokens)].
    """
    hidden = model.hidden_states(tokens, LAYER)
    queries = model.project(hidden, LAYER, "query")[positions]
    keys = model.project(hidden, LAYER, "key")
    weights = model.project(hidden, LAYER, "value").mean(dim=2)[positions]
    similarities = torch.einsum("thd,shd->ths", queries, keys).relu()
    scores: NDArray[np.float32] = (weights[:, :, None] * similarities).sum(dim=1).numpy()
    return scores


def describe(directory: Path, text: str) -> dict[str, str]:
    """Provenance of a capture, as metadata of its file."""
    return {
        "construction": "score(t, s) = sum_h weight_h(t) * relu(q_h(t) . k_h(s)); see tiebreak.inputs.capture",
        "model": f"sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), from the package {PACKAGE} 0.1.0",
        "model_sha256": hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest(),
        "layer": str(LAYER),
        "text": f"pydoc_data.topics of Python {platform.python_version()} (PSF-2.0)",
        "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "torch": torch.__version__,
        "numbering": "column = token index = id; the row of token t has length t + 1",
    }


def main(
    output: Annotated[Path, typer.Argument(help="File to write, .npz.")],
    model: Annotated[Path | None, typer.Option(help="Model folder; default: the installed package.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Number of queries.")] = 32,
    columns: Annotated[int, typer.Option(min=1, help="Number of tokens.")] = 4096,
) -> None:
    """Write the captured scores and print the share of exact zeros."""
    directory = model or find_model()
    text = real_text()
    encoder = MiniLM.load(directory)
    tokens = encoder.encode(text)[:columns]
    lengths = np.linspace(len(tokens) // rows, len(tokens), rows).astype(np.int32)
    with torch.inference_mode():
        scores = indexer_scores(encoder, tokens, [int(length) - 1 for length in lengths])
    metadata = np.array(json.dumps(describe(directory, text)))
    np.savez_compressed(output, scores=scores, lengths=lengths, metadata=metadata)
    typer.echo(f"{output}: {rows} rows, {len(tokens)} columns, {np.mean(scores == 0):.1%} exactly zero")


if __name__ == "__main__":
    typer.run(main)
