"""Kernels of the zoo that are written in Triton: correct, and with one mistake where ``broken`` is set."""

import triton
import triton.language as tl


@triton.jit
def read_back(
    values: tl.tensor, scratch: tl.tensor, output: tl.tensor, broken: tl.constexpr, block: tl.constexpr
) -> None:
    """Store a block to global memory and load it in reverse order.  Grid (1,)."""
    lanes = tl.arange(0, block)
    tl.store(scratch + lanes, tl.load(values + lanes))
    if not broken:
        tl.debug_barrier()
    tl.store(output + lanes, tl.load(scratch + (block - 1 - lanes)))


@triton.jit
def advance(state: tl.tensor, output: tl.tensor, broken: tl.constexpr, block: tl.constexpr) -> None:
    """Hand an epoch to all lanes, and advance it.  Grid (1,)."""
    lanes = tl.arange(0, block)
    epoch = tl.load(state)
    tl.store(output + lanes, lanes * 0 + epoch)
    if not broken:
        tl.debug_barrier()
    tl.store(state, epoch + 1)


@triton.jit
def load_row(
    values: tl.tensor,
    output: tl.tensor,
    row: tl.tensor,
    stride: tl.tensor,
    first: tl.tensor,
    broken: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Load the start of a row of a tensor whose element ``first`` is the first that is there.  Grid (1,)."""
    lanes = tl.arange(0, block)
    start = row * stride if broken else row.to(tl.int64) * stride
    tl.store(output + lanes, tl.load(values + (start - first) + lanes))


@triton.jit
def load_tail(
    values: tl.tensor, output: tl.tensor, length: tl.tensor, broken: tl.constexpr, block: tl.constexpr
) -> None:
    """Load a row that does not fill its block.  Grid (1,)."""
    lanes = tl.arange(0, block)
    inside = lanes < (block if broken else length)
    loaded = tl.load(values + lanes, mask=inside)
    tl.store(output + lanes, loaded, mask=lanes < length)


@triton.jit
def hand_over(
    values: tl.tensor,
    inbox: tl.tensor,
    flag: tl.tensor,
    output: tl.tensor,
    order: tl.constexpr,
    scope: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Push a block to another program behind a flag.  Grid (2,)."""
    lanes = tl.arange(0, block)
    if tl.program_id(0) == 0:
        tl.store(inbox + lanes, tl.load(values + lanes))
        tl.debug_barrier()
        tl.atomic_xchg(flag, 1, sem=order, scope=scope)
    else:
        while tl.atomic_add(flag, 0, sem="acquire", scope="gpu") == 0:
            pass
        tl.debug_barrier()
        tl.store(output + lanes, tl.load(inbox + lanes))
