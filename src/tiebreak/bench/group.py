"""The processes that torchrun starts, one per GPU, and how they end."""

from __future__ import annotations

import datetime
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from tiebreak.errors import InputError, MissingBackendError, TiebreakError

from .machine import require_gpu

if TYPE_CHECKING:
    from tiebreak.impl.torch_fabric import TorchFabric

COLLECTIVE_TIMEOUT = datetime.timedelta(seconds=120)
LAUNCHER = "python -m torch.distributed.run --standalone --nproc-per-node=2 -m tiebreak.bench"


def run_on_ranks(body: Callable[[TorchFabric], int]) -> NoReturn:
    """Run a body on this rank's fabric, and end the process with the exit status that it returns.

    Raises:
        InputError: The process was not started by torchrun.
        MissingBackendError: There is no GPU for this rank.
    """
    fabric = join_group()
    try:
        status = body(fabric)
        fabric.gather_objects(None)
    except TiebreakError as error:
        print(f"tiebreak: rank {fabric.rank}: {error}", file=sys.stderr)
        status = 2 if isinstance(error, InputError | MissingBackendError) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Destroying a group while a captured collective lives would wait for ever.
    os._exit(status)


def join_group() -> TorchFabric:
    """Join the process group that torchrun describes, and return this rank's fabric.

    Raises:
        InputError: The process was not started by torchrun.
        MissingBackendError: There is no GPU for this rank.
    """
    require_gpu()
    rank = os.environ.get("LOCAL_RANK")
    if rank is None:
        raise InputError("LOCAL_RANK", limit="must be set: one process per GPU", remedy=f"start with {LAUNCHER}")
    import torch
    import torch.distributed as dist

    from tiebreak.impl.torch_fabric import TorchFabric

    if torch.cuda.device_count() <= int(rank):
        limit = f"torch sees {torch.cuda.device_count()}"
        raise MissingBackendError(f"GPU {rank}", limit=limit, remedy="start one process per GPU")
    device = torch.device("cuda", int(rank))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, timeout=COLLECTIVE_TIMEOUT)
    return TorchFabric()
