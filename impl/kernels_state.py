"""State of one rank's exchange in device memory, and the functions that touch it.

The state is an int64 array.  Word 0 is the epoch counter, the number of the
last completed exchange; the rest is the error record.  Kernels compute the
epoch of the running exchange themselves (counter + 1), so that a replayed
CUDA graph takes part in a new exchange each time.

Epochs and flags are int64 and compared by half range, which stays right when
the counter wraps around.
"""

import triton
import triton.language as tl

EPOCH = tl.constexpr(0)
ERROR_KIND = tl.constexpr(1)
ERROR_PEER = tl.constexpr(2)
ERROR_EPOCH = tl.constexpr(3)
ERROR_OBSERVED = tl.constexpr(4)
STATE_WORDS = tl.constexpr(8)

NO_ERROR = tl.constexpr(0)
PUBLISH_TIMEOUT = tl.constexpr(1)
ACKNOWLEDGE_TIMEOUT = tl.constexpr(2)
ROW_MISMATCH = tl.constexpr(3)
INDEX_RANGE = tl.constexpr(4)
RETURN_TIMEOUT = tl.constexpr(5)

LARGEST_ID = tl.constexpr(2**31 - 1)


@triton.jit
def current_epoch(state: tl.tensor) -> tl.tensor:
    """Number of the exchange that is running."""
    return tl.load(state + EPOCH) + 1


@triton.jit
def has_failed(state: tl.tensor) -> tl.tensor:
    """Whether an earlier kernel recorded an error."""
    return tl.load(state + ERROR_KIND) != NO_ERROR


@triton.jit
def reached(flag: tl.tensor, target: tl.tensor) -> tl.tensor:
    """Whether a flag is at or past a target, in wrapping int64."""
    return flag - target >= 0


@triton.jit
def record_error(state: tl.tensor, kind: tl.tensor, peer: tl.tensor, epoch: tl.tensor, observed: tl.tensor) -> None:
    """Write the error record unless there is one: the first error wins.

    The exchange decides who writes the other words; they are read by later
    kernels only.
    """
    previous = tl.atomic_cas(
        state + ERROR_KIND, tl.cast(NO_ERROR, tl.int64), tl.cast(kind, tl.int64), sem="relaxed", scope="gpu"
    )
    if previous == NO_ERROR:
        tl.store(state + ERROR_PEER, tl.cast(peer, tl.int64))
        tl.store(state + ERROR_EPOCH, tl.cast(epoch, tl.int64))
        tl.store(state + ERROR_OBSERVED, tl.cast(observed, tl.int64))


@triton.jit
def initialise(
    state: tl.tensor,
    flags: tl.tensor,
    first_epoch: tl.tensor,
    state_words: tl.constexpr,
    flag_words: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Set every flag and the epoch counter to ``first_epoch``, and clear the error record.

    Grid (1,).  Runs before any peer may write, see ``Workspace.create``.
    """
    words = tl.arange(0, state_words)
    tl.store(state + words, tl.where(words == EPOCH, tl.cast(first_epoch, tl.int64), 0))
    for start in range(0, flag_words, block):
        lanes = start + tl.arange(0, block)
        tl.store(flags + lanes, tl.full((block,), 0, tl.int64) + first_epoch, mask=lanes < flag_words)


@triton.jit
def clear(words: tl.tensor, count: int, block: tl.constexpr) -> None:
    """Set ``count`` words of int64 to 0.  Grid (ceil(count / block),).  Runs when ``initialise`` does."""
    lanes = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(words + lanes, tl.full((block,), 0, tl.int64), mask=lanes < count)
