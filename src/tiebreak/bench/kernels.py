"""Kernels that measure floors: nothing, a copy, and a copy into the memory of peers."""

import triton
import triton.language as tl


@triton.jit
def do_nothing() -> None:
    """Return at once."""


@triton.jit
def copy_words(source: tl.tensor, destination: tl.tensor, count: tl.tensor, block: tl.constexpr) -> None:
    """Copy ``count`` words.  Grid (ceil(count / block),)."""
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < count
    tl.store(destination + place, tl.load(source + place, mask=inside), mask=inside)


@triton.jit
def push_words(
    source: tl.tensor,
    addresses: tl.tensor,
    count: tl.tensor,
    offset: tl.tensor,
    rank: tl.constexpr,
    alignment: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Copy ``count`` int32 words to byte ``offset`` of every peer's buffer.  Grid (ceil(count / block), W - 1).

    ``alignment`` is that of ``offset`` in bytes: the compiler cannot know that of
    an address that it reads from memory, and would copy word by word.
    """
    peer = tl.program_id(1)
    peer += peer >= rank
    destination = (tl.load(addresses + peer) + offset).to(tl.pointer_type(tl.int32))
    destination = tl.multiple_of(destination, alignment)
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < count
    tl.store(destination + place, tl.load(source + place, mask=inside), mask=inside)
