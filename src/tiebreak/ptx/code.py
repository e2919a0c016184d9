"""PTX code that can be launched, whatever it was compiled from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tiebreak.errors import InputError
from tiebreak.sim.ptx.module import Kernel, Module
from tiebreak.sim.ptx.parser import parse


@dataclass(frozen=True)
class KernelCode:
    """A PTX text, and what its compiler says about launches.

    Attributes:
        text: PTX text.
        name: File or kernel that it came from, for messages.
        shared_bytes: Dynamic shared memory per CTA.
        entry: Kernel to launch; may be empty where the text has one only.
        explain: Gives the same kernel with source positions, if its compiler can and the text has none.
    """

    text: str
    name: str
    shared_bytes: int = 0
    entry: str = ""
    explain: Callable[[], KernelCode] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def module(self) -> Module:
        """The parsed text.

        Raises:
            PtxSyntaxError: The text is not PTX.
        """
        return parse(self.text, self.name)

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel to launch.

        Raises:
            PtxSyntaxError: The text is not PTX.
            InputError: It has no kernel of that name, or several and none is named.
        """
        kernels = self.module.kernels
        if not self.entry and len(kernels) == 1:
            return next(iter(kernels.values()))
        if self.entry not in kernels:
            limit = f"{self.name} has {', '.join(kernels) or 'none'}"
            raise InputError("kernel", value=self.entry, limit=limit, remedy="name one of them")
        return kernels[self.entry]


def read_file(path: Path, entry: str = "", shared_bytes: int = 0) -> KernelCode:
    """The code of a ``.ptx`` file.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("PTX file", value=str(path), limit=str(error), remedy="name a .ptx file") from error
    return KernelCode(text, path.name, shared_bytes, entry)
