"""Generated code for each kind of instruction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .executor_access import Load, make_access
from .executor_async import make_async
from .executor_emission import Emission
from .executor_fences import make_fence
from .executor_memory import Operands
from .executor_warp import WarpInstruction
from .executor_windows import make_window_operation
from .form import Entry, ValueOperation, register_storage
from .module import Address, Immediate, Instruction, Operand, Pair, Register, Symbol, Vector
from .table import resolve_value, split_operands


def emit(emission: Emission, instruction: Instruction, entry: Entry) -> None:
    """Add the code of one instruction.

    Raises:
        UnknownInstructionError: The table does not have this form of it.
    """
    _EMITTERS[entry.kind](emission, instruction)


def _emit_value(emission: Emission, instruction: Instruction) -> None:
    operation = resolve_value(instruction, emission.kernel)
    destinations, sources = split_operands(instruction)
    emission.guard(instruction)
    texts = [emission.source(source, kind) for source, kind in zip(sources, operation.sources, strict=True)]
    if len(destinations) > 1:
        emission.line(f"t = {emission.bind(operation.evaluate)}({', '.join(texts)})")
        for place, destination in enumerate(destinations):
            if destination is not None:
                _assign(emission, instruction, destination, f"t[{place}]")
    elif (destination := destinations[0]) is not None:
        ufunc, view = _find_ufunc(instruction, operation)
        if ufunc is not None:
            if ufunc is not operation.ufunc:
                texts[1] = emission.source(sources[1], view)
            view = "bool" if operation.destinations == ("bool",) else view
            keep = emission.keep(instruction, destination)
            mask = f", where={keep}" if keep else ""
            target = emission.register(destination, view)
            emission.line(f"{emission.bind(ufunc)}({', '.join(texts)}, out={target}{mask})")
        elif instruction.opcode == "mov" and len(texts) == 1:
            _assign(emission, instruction, destination, texts[0])
        else:
            _assign(emission, instruction, destination, f"{emission.bind(operation.evaluate)}({', '.join(texts)})")


def _find_ufunc(instruction: Instruction, operation: ValueOperation) -> tuple[np.ufunc | None, str]:
    """The one NumPy function that does an instruction, and the type of its operands; shifts by a constant have one."""
    distance = instruction.operands[-1]
    if instruction.opcode in ("shl", "shr") and isinstance(distance, Immediate):
        view = operation.sources[0]
        if distance.bits < 8 * np.dtype(view).itemsize:
            return (np.left_shift if instruction.opcode == "shl" else np.right_shift), view
    return operation.ufunc, operation.view


def _assign(emission: Emission, instruction: Instruction, destination: Register, value: str) -> None:
    target = emission.register(destination)
    keep = emission.keep(instruction, destination)
    emission.line(f"copyto({target}, {value}, where={keep})" if keep else f"{target}[...] = {value}")


def _emit_address(emission: Emission, instruction: Instruction) -> None:
    """cvta, mapa, isspacep, getctarank: functions of addresses and of the CTA."""
    destination, *sources = instruction.operands
    assert isinstance(destination, Register)
    emission.guard(instruction)
    operation = emission.bind(make_window_operation(instruction, emission.kernel))
    texts = [emission.source(source, _own_view(emission, source)) for source in sources]
    _assign(emission, instruction, destination, f"{operation}(c, {', '.join(texts)})")


def _own_view(emission: Emission, operand: Operand) -> str:
    if isinstance(operand, Register):
        return register_storage(operand.name, emission.kernel)
    return "uint32" if isinstance(operand, Immediate) else "uint64"


def _emit_access(emission: Emission, instruction: Instruction) -> None:
    """ld, st, atom, red, ldmatrix: the address, then what is read or written."""
    access = make_access(instruction, emission.kernel)
    if access is None:
        return
    mask = emission.guard(instruction) or "None"
    operands = list(instruction.operands)
    targets = _list_elements(operands.pop(0)) if access.reads else []
    if isinstance(access, Load) and len(targets) > 1:
        following = instruction.index + 1
        access.narrow([isinstance(one, Register) and emission.live(one.name, following) for one in targets])
    base, offset = _split_address(emission, operands.pop(0))
    if "L2::cache_hint" in instruction.modifiers:
        # The policy of the cache, which comes last, is no value.
        operands.pop()
    values = [emission.source(value, access.view_source(value)) for part in operands for value in _list_elements(part)]
    written = [emission.register(target, access.view_target(target)) if isinstance(target, Register) else "None"
               for target in targets]  # fmt: skip
    fields = f"{mask}, {base}, {offset}, [{', '.join(written)}], ({''.join(f'{value}, ' for value in values)})"
    emission.line(f"{emission.bind(access)}(c, g, {emission.bind(Operands)}({fields}))")


def _split_address(emission: Emission, operand: Operand) -> tuple[str, str]:
    """Return the expressions of an address: an array or None, and a number that is the same for all threads."""
    base, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
    if isinstance(base, Register):
        return emission.register(base), str(offset)
    if isinstance(base, Symbol):
        return "None", f"c.address({base.name!r}) + {offset}"
    assert isinstance(base, Immediate)
    return "None", str(base.bits + offset)


def _list_elements(operand: Operand) -> list[Operand]:
    if isinstance(operand, Vector):
        return list(operand.elements)
    return [operand.first, operand.second] if isinstance(operand, Pair) else [operand]


def _emit_warp(emission: Emission, instruction: Instruction) -> None:
    warp = WarpInstruction(instruction, emission.kernel)
    mask = emission.guard(instruction) or "None"
    destinations, sources = split_operands(instruction)
    targets = [emission.register(target) if target is not None else "None" for target in destinations]
    texts = [emission.source(source, view) for source, view in zip(sources, warp.sources, strict=True)]
    emission.line(f"{emission.bind(warp)}(c, g, {mask}, [{', '.join(targets)}], [{', '.join(texts)}])")


def _emit_fence(emission: Emission, instruction: Instruction) -> None:
    fence = make_fence(instruction)
    mask = emission.guard(instruction) or "None"
    emission.line(f"{emission.bind(fence)}(c, g, {mask})")


def _emit_async(emission: Emission, instruction: Instruction) -> None:
    operation = make_async(instruction, emission.kernel)
    if operation is None:
        return
    mask = emission.guard(instruction) or "None"
    targets = [emission.register(target) if isinstance(target, Register) else "None" for target in operation.targets]
    texts = []
    for operand, view in operation.sources:
        if isinstance(operand, Address):
            base, offset = _split_address(emission, operand)
            texts.append(f"({base}, {offset})")
        else:
            texts.append(emission.source(operand, view))
    emission.line(f"{emission.bind(operation)}(c, g, {mask}, [{', '.join(targets)}], [{', '.join(texts)}])")


def _emit_nothing(emission: Emission, instruction: Instruction) -> None:
    """griddepcontrol, setmaxnreg, pmevent: no effect here."""


_EMITTERS: dict[str, Callable[[Emission, Instruction], None]] = {
    "value": _emit_value,
    "address": _emit_address,
    "memory": _emit_access,
    "atomic": _emit_access,
    "warp": _emit_warp,
    "fence": _emit_fence,
    "async": _emit_async,
    "control": _emit_nothing,
}
