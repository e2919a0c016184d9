"""Where variables lie, and what special registers hold (PTX ISA, chapter 10, "Special Registers")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .executor_registers import LANES
from .memory_global import GlobalMemory
from .module import Kernel, Module, Variable

if TYPE_CHECKING:
    from .executor_cta import Cta

Triple = tuple[int, int, int]
ALIGNMENT = 16


class Layout:
    """Addresses of the variables that a kernel uses.

    Args:
        kernel: The kernel.
        used: Symbols that its instructions name.
        module: Its module.
        memory: Where module variables in global and constant memory live, from launch to launch.
        parameters: Address of the parameter space.
        dynamic: Bytes of dynamic shared memory.

    Attributes:
        addresses: Address of each variable and parameter in its state space.
        shared_bytes: Shared memory of a CTA.
        local_bytes: Local memory of a thread.
    """

    def __init__(
        self, kernel: Kernel, used: frozenset[str], module: Module, memory: GlobalMemory, parameters: int, dynamic: int
    ) -> None:
        self.addresses = {parameter.name: parameters + parameter.offset for parameter in kernel.parameters}
        self.shared_bytes = self.local_bytes = 0
        variables = [v for v in (*kernel.variables, *module.variables) if v.name in used]
        for variable in sorted(variables, key=lambda v: v.size == 0):
            self._place(variable, module, memory)
        self.dynamic_bytes = dynamic
        self.shared_bytes += dynamic
        self.local_bytes += -self.local_bytes % ALIGNMENT

    def _place(self, variable: Variable, module: Module, memory: GlobalMemory) -> None:
        if variable.space == "shared":
            self.shared_bytes += -self.shared_bytes % max(variable.alignment, 1)
            self.addresses[variable.name] = self.shared_bytes
            self.shared_bytes += variable.size
        elif variable.space == "local":
            self.local_bytes += -self.local_bytes % max(variable.alignment, 1)
            self.addresses[variable.name] = self.local_bytes
            self.local_bytes += variable.size
        else:
            self.addresses[variable.name] = memory.place_variable(module, variable)

    def fill_special(self, cta: Cta, width: int) -> None:
        """Set the special registers of a CTA that starts."""
        launch, file = cta.launch, cta.file
        threads = np.arange(width)
        number = cta.position.cta
        cluster = launch.cluster
        clusters = tuple(-(-extent // part) for extent, part in zip(launch.grid, cluster, strict=True))
        place = split_number(number, launch.grid)
        inside = tuple(one % part for one, part in zip(place, cluster, strict=True))
        triples = {
            "tid": split_number(threads, launch.block),
            "ntid": launch.block,
            "ctaid": place,
            "nctaid": launch.grid,
            "clusterid": tuple(one // part for one, part in zip(place, cluster, strict=True)),
            "nclusterid": clusters,
            "cluster_ctaid": inside,
            "cluster_nctaid": cluster,
        }
        for name, values in triples.items():
            for axis, value in zip("xyz", values, strict=True):
                file.array(f"%{name}.{axis}")[...] = value
        lanes = threads % LANES
        bits = np.uint64(1) << lanes.astype(np.uint64)
        single = {
            "laneid": lanes, "warpid": threads // LANES, "nwarpid": width // LANES, "smid": number,
            "nsmid": launch.ctas,
            "cluster_ctarank": cta.cluster_rank, "cluster_nctarank": launch.cluster_ctas,
            "lanemask_eq": bits, "lanemask_lt": bits - 1, "lanemask_le": 2 * bits - 1,
            "lanemask_gt": 0xFFFFFFFF - (2 * bits - 1), "lanemask_ge": 0xFFFFFFFF - (bits - 1),
            "dynamic_smem_size": self.dynamic_bytes, "total_smem_size": self.shared_bytes,
            "aggr_smem_size": self.shared_bytes, "gridid": launch.number,
            "is_explicit_cluster": launch.cluster_ctas > 1,
        }  # fmt: skip
        for name, value in single.items():
            file.array(f"%{name}")[...] = value


def split_number(number: Any, extents: Triple) -> tuple[Any, Any, Any]:
    """Return the three coordinates of a number, or of an array of them, x first."""
    x, y, _ = extents
    return number % x, number // x % y, number // (x * y)
