"""Selection by library sorts of one 64-bit key, on any device."""

from __future__ import annotations

import torch

LARGEST_ID = 2**31 - 1
WORD_MASK = 2**32 - 1
INFINITY_BITS = 0x7F80_0000
SIGN = -(2**31)


def composite_keys(candidates: torch.Tensor) -> torch.Tensor:
    """Return keys that are larger for better candidates under the preset ``ieee``.

    Args:
        candidates: int32 ``[..., 2]``: fp32 bits and id.

    Returns:
        int64 ``[...]``; -1 for padding.

    Source:
        The score word and the complemented id, as in https://github.com/vllm-project/vllm/pull/46076.
    """
    bits, ids = candidates[..., 0].long(), candidates[..., 1].long()
    words = torch.where(bits < 0, ~bits & WORD_MASK, bits + 2**31)
    words = torch.where(bits == SIGN, 2**31, words)
    words = torch.where((bits & LARGEST_ID) > INFINITY_BITS, 0, words)
    return torch.where(ids < 0, -1, (words << 31) | (LARGEST_ID - ids))


def select_by_sort(candidates: torch.Tensor, k: int) -> torch.Tensor:
    """Return the ids of the k best candidates of each row, best first, -1 in unused slots.

    Args:
        candidates: int32 ``[rows, N, 2]``.
        k: Ids per row, at most N.

    Returns:
        int32 ``[rows, k]``.
    """
    keys = torch.sort(composite_keys(candidates), dim=1, descending=True).values[:, :k]
    return torch.where(keys < 0, -1, LARGEST_ID - (keys & LARGEST_ID)).int()
