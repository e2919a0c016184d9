"""PTX instructions that the CuTeDSL kernels are made of, one function each.

Shared memory is addressed by 32-bit addresses of the window ``.shared::cta``,
global memory by 64-bit addresses.  ``when`` predicates an instruction: where it
is false, nothing happens.  Section numbers are those of the PTX ISA, chapter
"Instruction Set".
"""

from __future__ import annotations

import struct
from typing import Any

from cutlass import Boolean, Float32, Int32, Int64, Uint32
from cutlass.cute.arch import inline_ptx


def load_pairs(address: Int64, offset: int, inside: Boolean | None = None) -> list[Int32]:
    """Load two candidates, aligned to 16 bytes; both ids are -1 where ``inside`` is false (Data Movement: ld)."""
    load = f"ld.global.v4.b32 {{{{$w0}},{{$w1}},{{$w2}},{{$w3}}}}, [{{$r0}}+{offset}];"
    return _load_inside(load, address, 4, inside)


def load_candidate(address: Int64, offset: int, inside: Boolean | None = None) -> list[Int32]:
    """Load one candidate, aligned to 8 bytes; its id is -1 where ``inside`` is false (Data Movement: ld)."""
    return _load_inside(f"ld.global.v2.b32 {{{{$w0}},{{$w1}}}}, [{{$r0}}+{offset}];", address, 2, inside)


def _load_inside(load: str, address: Int64, count: int, inside: Boolean | None) -> list[Int32]:
    """Load candidates; ids, the words at odd places, are -1 where ``inside`` is false."""
    if inside is None:
        return list(inline_ptx(load, write_only_types=[Int32] * count, read_only_args=[address]))
    padding = " ".join(f"@!inside mov.b32 {{$w{place}}}, -1;" for place in range(1, count, 2))
    return list(
        inline_ptx(
            f"{{ .reg .pred inside; setp.ne.s32 inside, {{$r1}}, 0; @inside {load} {padding} }}",
            write_only_types=[Int32] * count,
            read_only_args=[address, Int32(inside)],
        )
    )


def load_packets(address: Int64, offset: int, count: int) -> list[Int32]:
    """Load one or two packets, two words each, that other devices may be writing (Data Movement: ld.relaxed.sys).

    Each is read at once: the elements of a vector are accesses of their own.
    """
    vector, packets = _packet_registers(count)
    words = " ".join(f"mov.b64 {{{{$w{2 * place}}},{{$w{2 * place + 1}}}}}, packet{place};" for place in range(count))
    load = f"ld.relaxed.sys.global{vector}.b64 {packets}, [{{$r0}}+{offset}];"
    return list(
        inline_ptx(
            f"{{ .reg .b64 packet0, packet1; {load} {words} }}",
            write_only_types=[Int32] * (2 * count),
            read_only_args=[address],
        )
    )


def store_packets(address: Int64, words: list[Int32], when: Boolean) -> None:
    """Store one or two packets, two words each and each at once, to any device (Data Movement: st.relaxed.sys)."""
    count = len(words) // 2
    vector, packets = _packet_registers(count)
    parts = " ".join(
        f"mov.b64 packet{place}, {{{{$r{2 * place + 1}}},{{$r{2 * place + 2}}}}};" for place in range(count)
    )
    inline_ptx(
        f"{{ .reg .pred when; .reg .b64 packet0, packet1; setp.ne.s32 when, {{$r{len(words) + 1}}}, 0; {parts} "
        f"@when st.relaxed.sys.global{vector}.b64 [{{$r0}}], {packets}; }}",
        read_only_args=[address, *words, Int32(when)],
    )


def _packet_registers(count: int) -> tuple[str, str]:
    """Vector suffix, and the registers ``packet0`` and ``packet1``, as PTX writes one or two packets."""
    return (".v2", "{packet0, packet1}") if count == 2 else ("", "packet0")


def load_long(address: Int64) -> Int64:
    """Load an int64 (Data Movement: ld)."""
    return inline_ptx("ld.global.b64 {$w0}, [{$r0}];", write_only_types=[Int64], read_only_args=[address])


def store_word(address: Int64, word: Int32, when: Boolean | None = None) -> None:
    """Store a word (Data Movement: st)."""
    inline_ptx("st.global.b32 [{$r0}], {$r1};", read_only_args=[address, word], predicate=when)


def load_shared(address: Int32) -> Int32:
    """Load a word of shared memory (Data Movement: ld)."""
    return inline_ptx("ld.shared.b32 {$w0}, [{$r0}];", write_only_types=[Int32], read_only_args=[address])


def load_shared_words(address: Int32, count: int) -> list[Int32]:
    """Load 2 or 4 words of shared memory (Data Movement: ld)."""
    registers = ",".join(f"{{$w{word}}}" for word in range(count))
    return list(
        inline_ptx(
            f"ld.shared.v{count}.b32 {{{registers}}}, [{{$r0}}];",
            write_only_types=[Int32] * count,
            read_only_args=[address],
        )
    )


def store_shared(address: Int32, word: Int32, when: Boolean | None = None) -> None:
    """Store a word to shared memory (Data Movement: st)."""
    inline_ptx("st.shared.b32 [{$r0}], {$r1};", read_only_args=[address, word], predicate=when)


def store_shared_words(address: Int32, words: list[Int32], when: Boolean | None = None) -> None:
    """Store 2 or 4 words to shared memory (Data Movement: st)."""
    registers = ",".join(f"{{$r{word + 1}}}" for word in range(len(words)))
    inline_ptx(
        f"st.shared.v{len(words)}.b32 [{{$r0}}], {{{registers}}};", read_only_args=[address, *words], predicate=when
    )


def count_shared(address: Int32) -> None:
    """Add one to a counter in shared memory (Parallel Synchronization: red)."""
    inline_ptx("red.shared.add.u32 [{$r0}], 1;", read_only_args=[address])


def take_slot(address: Int32, when: Boolean | None = None) -> Int32:
    """Add one to a counter in shared memory and return its old value (Parallel Synchronization: atom).

    Where ``when`` is false the result is unspecified.
    """
    # Not add: the compiler would aggregate that over the warp, at several times the instructions.
    return inline_ptx(
        "atom.shared.inc.u32 {$w0}, [{$r0}], 0x7FFFFFFF;",
        write_only_types=[Int32],
        read_only_args=[address],
        predicate=when,
    )


def float_bits(value: Float32) -> Int32:
    """Bits of an fp32 value (Data Movement: mov)."""
    return inline_ptx("mov.b32 {$w0}, {$r0};", write_only_types=[Int32], read_only_args=[value])


def bits_float(bits: Int32) -> Float32:
    """Value of fp32 bits (Data Movement: mov)."""
    return inline_ptx("mov.b32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[bits])


def least_unsigned(first: Int32, second: Int32) -> Int32:
    """Smaller of two words as unsigned numbers (Integer Arithmetic: min)."""
    return inline_ptx("min.u32 {$w0}, {$r0}, {$r1};", write_only_types=[Int32], read_only_args=[first, second])


def largest_unsigned(first: Int32, second: Int32) -> Int32:
    """Larger of two words as unsigned numbers (Integer Arithmetic: max)."""
    return inline_ptx("max.u32 {$w0}, {$r0}, {$r1};", write_only_types=[Int32], read_only_args=[first, second])


def warp_least_unsigned(word: Int32) -> Int32:
    """Smallest word of the warp's lanes, unsigned (Parallel Synchronization: redux.sync)."""
    return inline_ptx("redux.sync.min.u32 {$w0}, {$r0}, -1;", write_only_types=[Int32], read_only_args=[word])


def warp_largest_unsigned(word: Int32) -> Int32:
    """Largest word of the warp's lanes, unsigned (Parallel Synchronization: redux.sync)."""
    return inline_ptx("redux.sync.max.u32 {$w0}, {$r0}, -1;", write_only_types=[Int32], read_only_args=[word])


def warp_sum(word: Int32) -> Int32:
    """Sum over the warp's lanes (Parallel Synchronization: redux.sync)."""
    return inline_ptx("redux.sync.add.u32 {$w0}, {$r0}, -1;", write_only_types=[Int32], read_only_args=[word])


def sum_bytes(word: Int32, total: Int32) -> Int32:
    """``total`` plus the four unsigned bytes of a word (Integer Arithmetic: dp4a)."""
    return inline_ptx(
        "dp4a.u32.u32 {$w0}, {$r0}, 0x01010101, {$r1};", write_only_types=[Int32], read_only_args=[word, total]
    )


def high_product(first: Int32, second: Int32) -> Int32:
    """High word of an unsigned product (Integer Arithmetic: mul.hi)."""
    return inline_ptx("mul.hi.u32 {$w0}, {$r0}, {$r1};", write_only_types=[Int32], read_only_args=[first, second])


def leading_zeros(word: Int32) -> Int32:
    """Number of leading zero bits (Integer Arithmetic: clz)."""
    return inline_ptx("clz.b32 {$w0}, {$r0};", write_only_types=[Int32], read_only_args=[word])


def shift_right(word: Int32, places: Int32) -> Int32:
    """Word shifted right, zeros coming in; 32 places and more give 0 (Logic and Shift: shr)."""
    return inline_ptx("shr.u32 {$w0}, {$r0}, {$r1};", write_only_types=[Int32], read_only_args=[word, places])


def unsigned(word: Int32) -> Uint32:
    """The same word, compared as an unsigned number."""
    return Uint32(word)


def add_lower_lane(word: Int32, distance: int) -> Int32:
    """Word plus that of the lane ``distance`` below, if there is one (Data Movement: shfl.sync)."""
    return inline_ptx(
        "{ .reg .pred inside; .reg .b32 other, sum; mov.b32 sum, {$r0}; "
        f"shfl.sync.up.b32 other|inside, sum, {distance}, 0, -1; "
        "@inside add.u32 sum, sum, other; mov.b32 {$w0}, sum; }",
        write_only_types=[Int32],
        read_only_args=[word],
    )


def last_lane(word: Int32) -> Int32:
    """Word of lane 31 (Data Movement: shfl.sync)."""
    return inline_ptx("shfl.sync.idx.b32 {$w0}, {$r0}, 31, 31, -1;", write_only_types=[Int32], read_only_args=[word])


def reverse_order(bits: Int32) -> Int32:
    """Word of fp32 bits that is smaller, as an unsigned number, for a larger value; its own inverse."""
    return bits ^ (~(bits >> 31) & 0x7FFFFFFF)


def scaled_distance(
    word: Int32, best_word: Int32, worst_word: Int32, best_score: Float32, inverse: Float32, scale: float
) -> Int32:
    """Distance of a score from the best one as a share of the range, times ``scale`` (Floating Point: mul, fma).

    Words beyond either bound count as the bound.  The result is that of
    ``magnified_distance``, less the bits of 2^23.
    """
    return inline_ptx(
        "{ .reg .b32 bits, sign; .reg .f32 score; "
        "max.u32 bits, {$r0}, {$r1}; min.u32 bits, bits, {$r2}; "
        "shr.s32 sign, bits, 31; not.b32 sign, sign; and.b32 sign, sign, 0x7FFFFFFF; xor.b32 bits, bits, sign; "
        "mov.b32 score, bits; sub.rn.f32 score, {$r3}, score; mul.rn.sat.f32 score, score, {$r4}; "
        f"fma.rn.f32 score, score, {float_constant(scale)}, 0f4B000000; "
        "mov.b32 bits, score; sub.s32 {$w0}, bits, 0x4B000000; }",
        write_only_types=[Int32],
        read_only_args=[word, best_word, worst_word, best_score, inverse],
    )


def hidden(word: Int32) -> Int32:
    """The same word, of which the compiler knows nothing: what follows from it is computed anew at every use."""
    return inline_ptx("mov.b32 {$w0}, {$r0};", write_only_types=[Int32], read_only_args=[word])


def add_shared(address: Int32, term: Int32, when: Boolean) -> None:
    """Add to a counter in shared memory (Parallel Synchronization: red)."""
    inline_ptx("red.shared.add.u32 [{$r0}], {$r1};", read_only_args=[address, term], predicate=when)


def any_thread(vote: Boolean) -> Boolean:
    """Barrier of the CTA that tells whether any thread votes yes (Parallel Synchronization: barrier.red)."""
    result = inline_ptx(
        "{ .reg .pred vote, any; setp.ne.s32 vote, {$r0}, 0; "
        "barrier.cta.red.or.pred any, 0, vote; selp.b32 {$w0}, 1, 0, any; }",
        write_only_types=[Int32],
        read_only_args=[Int32(vote)],
    )
    return result != 0


def largest_float(first: Float32, second: Float32) -> Float32:
    """Larger of two numbers; a NaN counts for nothing (Floating Point: max)."""
    return inline_ptx("max.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Float32], read_only_args=[first, second])


def least_float(first: Float32, second: Float32) -> Float32:
    """Smaller of two numbers; a NaN counts for nothing (Floating Point: min)."""
    return inline_ptx("min.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Float32], read_only_args=[first, second])


def magnified_distance(bits: Int32, best_score: Float32, inverse: Float32, scale: float) -> Int32:
    """Bits of 2^23 plus a score's distance from the best one as a share of the range, times ``scale``.

    ``inverse`` is the reciprocal of the range.  The share is held within 0..1
    (Floating Point: mul.sat), so scores beyond the range count as its bounds;
    the sum with 2^23 leaves the rounded product in the low bits (Floating
    Point: fma).  One block of assembly: the compiler would otherwise keep what
    two uses have in common, for every candidate of a thread.
    """
    return inline_ptx(
        "{ .reg .f32 score; mov.b32 score, {$r0}; sub.rn.f32 score, {$r1}, score; "
        "mul.rn.sat.f32 score, score, {$r2}; "
        f"fma.rn.f32 score, score, {float_constant(scale)}, 0f4B000000; mov.b32 {{$w0}}, score; }}",
        write_only_types=[Int32],
        read_only_args=[bits, best_score, inverse],
    )


def float_constant(value: float) -> str:
    """An fp32 constant as PTX writes it (Syntax: constants)."""
    return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"


def low_reciprocal(value: Float32) -> Float32:
    """Reciprocal of a number within 0..2^126, up to 1.5 % too small; 3.2e38 for 0 (Floating Point: fma, mul).

    The bits of a float are nearly its logarithm, which makes a difference an
    approximate quotient; one step of Newton's method makes it a lower bound.
    Every device gives the same bits, which approximate instructions do not.
    """
    return inline_ptx(
        "{ .reg .b32 bits; .reg .f32 guess, factor; mov.b32 bits, {$r0}; sub.s32 bits, 0x7EF311C7, bits; "
        "mov.b32 guess, bits; neg.f32 factor, {$r0}; fma.rn.f32 factor, factor, guess, 0f40000000; "
        "mul.rn.f32 {$w0}, guess, factor; }",
        write_only_types=[Float32],
        read_only_args=[value],
    )


def lane_word(word: Int32, lane: Int32) -> Int32:
    """Word of a lane (Data Movement: shfl.sync)."""
    return inline_ptx(
        "shfl.sync.idx.b32 {$w0}, {$r0}, {$r1}, 31, -1;", write_only_types=[Int32], read_only_args=[word, lane]
    )


def lanes_where(vote: Boolean) -> Int32:
    """The lanes that vote yes, one bit each (Parallel Synchronization: vote.sync)."""
    return inline_ptx(
        "{ .reg .pred vote; setp.ne.s32 vote, {$r0}, 0; vote.sync.ballot.b32 {$w0}, vote, -1; }",
        write_only_types=[Int32],
        read_only_args=[Int32(vote)],
    )


def count_ahead(count: Int32, first: list[Int32], second: list[Int32]) -> Int32:
    """``count`` plus 1 if ``first`` is better than ``second`` by word, then id (Comparison and Selection: setp)."""
    return inline_ptx(
        "{ .reg .pred same, ahead; .reg .b32 sum; setp.eq.u32 same, {$r1}, {$r3}; "
        "setp.lt.u32.and same, {$r2}, {$r4}, same; setp.lt.u32.or ahead, {$r1}, {$r3}, same; "
        "mov.b32 sum, {$r0}; @ahead add.u32 sum, sum, 1; mov.b32 {$w0}, sum; }",
        write_only_types=[Int32],
        read_only_args=[count, *first, *second],
    )


def count_bits(word: Int32) -> Int32:
    """Number of bits that are set (Integer Arithmetic: popc)."""
    return inline_ptx("popc.b32 {$w0}, {$r0};", write_only_types=[Int32], read_only_args=[word])


def widen_scores(bounds: list[Any], key: Int32, wanted: Int32, bits: Int32) -> list[Any]:
    """Widen (lowest score, highest score) where ``key`` is ``wanted``.

    Predicated minima and maxima, which the compiler does not form by itself.
    """
    return list(
        inline_ptx(
            "{ .reg .pred member; .reg .f32 score, low, high; setp.eq.s32 member, {$r2}, {$r3}; "
            "mov.b32 score, {$r4}; mov.f32 low, {$r0}; mov.f32 high, {$r1}; "
            "@member min.f32 low, low, score; @member max.f32 high, high, score; "
            "mov.f32 {$w0}, low; mov.f32 {$w1}, high; }",
            write_only_types=[Float32, Float32],
            read_only_args=[*bounds, key, wanted, bits],
        )
    )


def count_equal(bits: Int32, wanted: Float32, identity: Int32, places: Int32, counters: Int32, bins: int) -> None:
    """Count a score's id by its leading bits if the score is ``wanted``; others have a counter behind the ``bins``.

    Ids beyond the last bin count in it (Comparison and Selection: setp, selp).
    """
    inline_ptx(
        "{ .reg .pred member; .reg .f32 score; .reg .b32 place; "
        "mov.b32 score, {$r0}; setp.eq.f32 member, score, {$r1}; "
        f"shr.u32 place, {{$r2}}, {{$r3}}; min.u32 place, place, {bins - 1}; selp.b32 place, place, {bins}, member; "
        "mad.lo.u32 place, place, 4, {$r4}; red.shared.add.u32 [place], 1; }",
        read_only_args=[bits, wanted, identity, places, counters],
    )


def mark(marks: Int32, wanted: Boolean, bit: int) -> Int32:
    """``marks`` with a bit set if it is wanted (Logic and Shift: or)."""
    return inline_ptx(
        "{ .reg .pred wanted; .reg .b32 marks; setp.ne.s32 wanted, {$r1}, 0; mov.b32 marks, {$r0}; "
        f"@wanted or.b32 marks, marks, {bit:#x}; mov.b32 {{$w0}}, marks; }}",
        write_only_types=[Int32],
        read_only_args=[marks, Int32(wanted)],
    )


def add_above(word: Int32, term: int, bits: Int32, threshold: Float32) -> Int32:
    """``word`` plus ``term`` if a score exceeds the threshold (Comparison and Selection: setp)."""
    return inline_ptx(
        "{ .reg .pred above; .reg .b32 sum; setp.gt.f32 above, {$r1}, {$r2}; mov.b32 sum, {$r0}; "
        f"@above add.u32 sum, sum, {term}; mov.b32 {{$w0}}, sum; }}",
        write_only_types=[Int32],
        read_only_args=[word, bits, threshold],
    )


def raise_tie(bits: Int32, threshold: Float32, identity: Int32, last: Int32) -> Int32:
    """Score bits, or infinity if the score equals the threshold and the id is at most ``last``."""
    return inline_ptx(
        "{ .reg .pred kept; .reg .b32 score; setp.eq.f32 kept, {$r0}, {$r1}; "
        "setp.le.u32.and kept, {$r2}, {$r3}, kept; mov.b32 score, {$r0}; "
        "@kept mov.b32 score, 0x7F800000; mov.b32 {$w0}, score; }",
        write_only_types=[Int32],
        read_only_args=[bits, threshold, identity, last],
    )


def store_above(address: Int64, slot: Int32, threshold: Float32, bits: list[Int32], words: list[Int32]) -> None:
    """Store those of two words whose scores exceed the threshold, from ``slot`` on (Data Movement: st)."""
    inline_ptx(
        "{ .reg .pred first, second; .reg .b32 slot; .reg .b64 place; "
        "setp.gt.f32 first, {$r2}, {$r4}; setp.gt.f32 second, {$r3}, {$r4}; "
        "mov.b32 slot, {$r1}; mad.wide.u32 place, slot, 4, {$r0}; @first st.global.b32 [place], {$r5}; "
        "@first add.u32 slot, slot, 1; mad.wide.u32 place, slot, 4, {$r0}; @second st.global.b32 [place], {$r6}; }",
        read_only_args=[address, slot, *bits, threshold, *words],
    )


def stage_above(address: Int32, threshold: Float32, bits: list[Int32], words: list[Int32]) -> None:
    """Store those of two words whose scores exceed the threshold, one after the other, to shared memory.

    Data Movement: st.
    """
    inline_ptx(
        "{ .reg .pred first, second; .reg .b32 place; "
        "setp.gt.f32 first, {$r1}, {$r3}; setp.gt.f32 second, {$r2}, {$r3}; mov.b32 place, {$r0}; "
        "@first st.shared.b32 [place], {$r4}; @first add.u32 place, place, 4; @second st.shared.b32 [place], {$r5}; }",
        read_only_args=[address, *bits, threshold, *words],
    )


def select_byte(word: Int32, place: int) -> Int32:
    """One byte of a word (Data Movement: prmt)."""
    return inline_ptx(
        f"prmt.b32 {{$w0}}, {{$r0}}, 0, {0x4440 + place};", write_only_types=[Int32], read_only_args=[word]
    )


def hidden_address(address: Int64) -> Int64:
    """The same address, as ``hidden`` returns a word."""
    return inline_ptx("mov.b64 {$w0}, {$r0};", write_only_types=[Int64], read_only_args=[address])


def prefetch_bytes(address: Int64, byte_count: int, when: Boolean) -> None:
    """Bring memory into the L2 cache; both multiples of 16 (Data Movement: cp.async.bulk.prefetch)."""
    inline_ptx(f"cp.async.bulk.prefetch.L2.global [{{$r0}}], {byte_count};", read_only_args=[address], predicate=when)


def load_word(address: Int64, default: int, when: Boolean) -> Int32:
    """Load a word, or return ``default`` where ``when`` is false (Data Movement: ld)."""
    return inline_ptx(
        "{ .reg .pred when; .reg .b32 word; setp.ne.s32 when, {$r1}, 0; "
        f"mov.b32 word, {default}; @when ld.global.b32 word, [{{$r0}}]; mov.b32 {{$w0}}, word; }}",
        write_only_types=[Int32],
        read_only_args=[address, Int32(when)],
    )


def store_words(address: Int64, words: list[Int32], when: Boolean | None = None) -> None:
    """Store 2 or 4 words, aligned to their size (Data Movement: st)."""
    registers = ",".join(f"{{$r{word + 1}}}" for word in range(len(words)))
    inline_ptx(
        f"st.global.v{len(words)}.b32 [{{$r0}}], {{{registers}}};", read_only_args=[address, *words], predicate=when
    )


def store_long(address: Int64, value: Int64, when: Boolean | None = None) -> None:
    """Store an int64 (Data Movement: st)."""
    inline_ptx("st.global.b64 [{$r0}], {$r1};", read_only_args=[address, value], predicate=when)


def release_flag(address: Int64, value: Int64) -> None:
    """Store a flag so that who acquires it sees what came before, on any device (Data Movement: st.release.sys)."""
    inline_ptx("st.release.sys.global.b64 [{$r0}], {$r1};", read_only_args=[address, value])


def acquire_flag(address: Int64) -> Int64:
    """Load a flag, and with it what its release covers, from any device (Data Movement: ld.acquire.sys)."""
    return inline_ptx("ld.acquire.sys.global.b64 {$w0}, [{$r0}];", write_only_types=[Int64], read_only_args=[address])


def peek_word(address: Int64) -> Int64:
    """Load an int64 that other CTAs may be writing (Data Movement: ld.relaxed.gpu)."""
    return inline_ptx("ld.relaxed.gpu.global.b64 {$w0}, [{$r0}];", write_only_types=[Int64], read_only_args=[address])


def claim_word(address: Int64, value: Int64) -> Int64:
    """Replace an int64 by ``value`` if it is 0, and return what it was (Parallel Synchronization: atom.cas)."""
    return inline_ptx(
        "atom.relaxed.gpu.global.cas.b64 {$w0}, [{$r0}], 0, {$r1};",
        write_only_types=[Int64],
        read_only_args=[address, value],
    )


def arrive(address: Int64, term: Int64) -> Int64:
    """Add to a counter of all CTAs, ordered with what precedes and follows (Parallel Synchronization: atom)."""
    return inline_ptx(
        "atom.acq_rel.gpu.global.add.u64 {$w0}, [{$r0}], {$r1};",
        write_only_types=[Int64],
        read_only_args=[address, term],
    )
