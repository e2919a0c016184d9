"""Kernels of a few lines that show which CTA barriers the Triton compiler adds around atomics.

The kernels of the exchange write the barriers that they need themselves, so
they cannot show what a compiler does where the source has none.
"""

import triton
import triton.language as tl


@triton.jit
def release(data: tl.tensor, flag: tl.tensor, block: tl.constexpr) -> None:
    """Release, behind stores of all threads."""
    lanes = tl.arange(0, block)
    tl.store(data + lanes, lanes)
    tl.atomic_xchg(flag, tl.cast(1, tl.int64), sem="release", scope="sys")


@triton.jit
def acquire(data: tl.tensor, flag: tl.tensor, output: tl.tensor, block: tl.constexpr) -> None:
    """Acquire without using the result, before loads of all threads."""
    lanes = tl.arange(0, block)
    tl.atomic_add(flag, tl.cast(1, tl.int64), sem="acquire", scope="sys")
    tl.store(output + lanes, tl.load(data + lanes))


@triton.jit
def use(flag: tl.tensor, output: tl.tensor, block: tl.constexpr) -> None:
    """Use the result of a relaxed atomic in all threads."""
    lanes = tl.arange(0, block)
    observed = tl.atomic_add(flag, tl.cast(1, tl.int64), sem="relaxed", scope="sys")
    tl.store(output + lanes, observed.to(tl.int32))


@triton.jit
def release_to_program(data: tl.tensor, flag: tl.tensor, output: tl.tensor, block: tl.constexpr) -> None:
    """Program 0 stores with all threads and releases; program 1 acquires and loads.  Right if all meet to release."""
    lanes = tl.arange(0, block)
    if tl.program_id(0) == 0:
        tl.store(data + lanes, lanes)
        tl.atomic_xchg(flag, tl.cast(1, tl.int64), sem="release", scope="gpu")
    else:
        observed = tl.atomic_add(flag, tl.cast(0, tl.int64), sem="acquire", scope="gpu")
        while observed == 0:
            observed = tl.atomic_add(flag, tl.cast(0, tl.int64), sem="acquire", scope="gpu")
        tl.debug_barrier()
        tl.store(output + lanes, tl.load(data + lanes))


@triton.jit
def acquire_from_program(data: tl.tensor, flag: tl.tensor, output: tl.tensor, block: tl.constexpr) -> None:
    """Program 1 polls, acquires without using the result, and loads.  Right if all meet behind the acquire."""
    lanes = tl.arange(0, block)
    if tl.program_id(0) == 0:
        tl.store(data + lanes, lanes)
        tl.debug_barrier()
        tl.atomic_xchg(flag, tl.cast(1, tl.int64), sem="release", scope="gpu")
    else:
        observed = tl.atomic_add(flag, tl.cast(0, tl.int64), sem="relaxed", scope="gpu")
        while observed == 0:
            observed = tl.atomic_add(flag, tl.cast(0, tl.int64), sem="relaxed", scope="gpu")
        tl.atomic_add(flag, tl.cast(1, tl.int64), sem="acquire", scope="gpu")
        tl.store(output + lanes, tl.load(data + lanes))


@triton.jit
def use_in_threads(data: tl.tensor, flag: tl.tensor, output: tl.tensor, block: tl.constexpr) -> None:
    """One thread stores; all use the result of a relaxed atomic and load.  Right if they meet to get the result."""
    lanes = tl.arange(0, block)
    tl.store(data, 7)
    observed = tl.atomic_add(flag, tl.cast(1, tl.int64), sem="relaxed", scope="gpu")
    tl.store(output + lanes, tl.load(data + lanes * 0) + observed.to(tl.int32))
