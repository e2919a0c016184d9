"""Selectors of other libraries behind the signature of a target.

An adapter adds nothing to the library's choice: it drops padding, which no
library here knows, and fills the slots that are left over with -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

ADAPTERS: Mapping[str, str] = MappingProxyType({"torch:topk": "tiebreak.target.adapters:torch_topk"})
"""Spellings of library functions, and the adapter that stands for each."""


def torch_topk(scores: Tensor, ids: Tensor, k: int) -> Tensor:
    """Select with ``torch.topk``, which leaves the choice among ties open.

    Args:
        scores: float32[N].
        ids: int32[N]; negative ids are padding.
        k: Number of slots; may exceed N.

    Returns:
        int32[k], in the order in which ``torch.topk`` returns them.
    """
    valid = ids >= 0
    chosen = torch.topk(scores[valid], min(k, int(valid.sum()))).indices
    output = torch.full((k,), -1, dtype=torch.int32)
    output[: len(chosen)] = ids[valid][chosen]
    return output
