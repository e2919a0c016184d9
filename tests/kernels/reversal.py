"""A CuTeDSL kernel that reverses a block through shared memory, with or without the barrier between."""

from typing import Any

import cutlass.cute as cute
from cutlass import Int32, Int64, const_expr

from tiebreak.impl.cutedsl.instructions import load_shared, load_word, store_shared, store_word

THREADS = 128


class Reversal:
    def __init__(self, broken: bool) -> None:
        self.broken = broken

    @cute.jit
    def __call__(self, values: Int64, output: Int64) -> None:
        self.reverse(values, output).launch(grid=[1, 1, 1], block=[THREADS, 1, 1], smem=4 * THREADS)

    @cute.kernel
    def reverse(self, values: Int64, output: Int64) -> None:
        thread, _, _ = cute.arch.thread_idx()
        shared = Int32(cute.arch.get_dyn_smem(Int32, alignment=16).toint())
        word = load_word(values + Int64(thread) * 4, 0, thread < THREADS)
        store_shared(shared + thread * 4, word)
        if const_expr(not self.broken):
            cute.arch.barrier()
        word = load_shared(shared + (THREADS - 1 - thread) * 4)
        store_word(output + Int64(thread) * 4, word)


def compile_reversal(broken: bool, options: str) -> Any:
    return cute.compile(Reversal(broken), Int64(0), Int64(0), options=options)
