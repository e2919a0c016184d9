"""Operators of ``torch.ops.tiebreak`` for the merge, and how a graph names its workspace.

A graph holds tensors and plain values only.  ``register_workspace`` therefore
gives a workspace a name, which the operators look up when they run and when
they are traced; the registry does not keep the workspace alive.

Merges have an order that no data shows: they are collective, and each takes the
next epoch.  Every operator therefore claims to change the handle's ``token``, a
tensor that nobody reads, so that no pass of a compiler reorders, joins or drops
merges of one workspace.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

import torch
from torch.library import custom_op

from tiebreak.errors import WorkspaceError

from . import merge
from .operators import NAMESPACE
from .select import prepare_output
from .workspace import Workspace

_WORKSPACES: WeakValueDictionary[str, Workspace] = WeakValueDictionary()


@dataclass(frozen=True)
class WorkspaceHandle:
    """What a graph holds of a workspace.

    Attributes:
        token: int32 ``[1]`` on the workspace's device, which stands for the order of its merges.
        name: Name of the workspace.
    """

    token: torch.Tensor
    name: str


def register_workspace(workspace: Workspace, name: str) -> WorkspaceHandle:
    """Name a workspace for the operators of this process, until it is closed or dropped.

    Args:
        workspace: An open workspace; the caller keeps it alive.
        name: Any name, the same on all ranks or not.

    Raises:
        WorkspaceError: Another open workspace has the name, or this one cannot merge.
    """
    workspace.require_usable()
    other = _WORKSPACES.get(name)
    if other is not None and other is not workspace and not other.closed:
        raise WorkspaceError(
            f"workspace {name!r}", value="open", limit="a name belongs to one workspace", remedy="choose another name"
        )
    _WORKSPACES[name] = workspace
    return WorkspaceHandle(torch.zeros(1, dtype=torch.int32, device=workspace.fabric.device), name)


def find_workspace(name: str) -> Workspace:
    """Return the workspace of a name.

    Raises:
        WorkspaceError: No workspace has the name, or the one that has it cannot merge.
    """
    workspace = _WORKSPACES.get(name)
    if workspace is None:
        raise WorkspaceError(
            f"workspace {name!r}",
            value="unknown",
            limit="a graph merges through a workspace that this process has registered",
            remedy="call register_workspace, and keep the workspace alive while graphs use it",
        )
    try:
        workspace.require_usable()
    except WorkspaceError as error:
        raise WorkspaceError(
            f"workspace {name!r}", value=error.value, limit=error.limit, remedy=f"{error.remedy} and register it anew"
        ) from error
    return workspace


@custom_op(f"{NAMESPACE}::merge_topk", mutates_args=("token",))
def merge_topk(
    token: torch.Tensor,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    workspace: str,
) -> torch.Tensor:
    """As ``merge.merge_topk`` through a registered workspace: int32 ``[rows, k]``."""
    return merge.merge_topk(find_workspace(workspace), scores, local_indices, row_starts=row_starts)


@custom_op(f"{NAMESPACE}::merge_topk_out", mutates_args=("token", "out"))
def merge_topk_out(
    token: torch.Tensor,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    out: torch.Tensor,
    workspace: str,
) -> None:
    """As ``merge_topk`` into ``out``, int32 ``[rows, k]``."""
    merge.merge_topk(find_workspace(workspace), scores, local_indices, out=out, row_starts=row_starts)


@merge_topk.register_fake
def _(
    token: torch.Tensor,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    workspace: str,
) -> torch.Tensor:
    return _fake_merge(scores, local_indices, row_starts, None, workspace)


@merge_topk_out.register_fake
def _(
    token: torch.Tensor,
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    out: torch.Tensor,
    workspace: str,
) -> None:
    _fake_merge(scores, local_indices, row_starts, out, workspace)


def _fake_merge(
    scores: torch.Tensor,
    local_indices: torch.Tensor,
    row_starts: torch.Tensor | None,
    out: torch.Tensor | None,
    name: str,
) -> torch.Tensor:
    """Check a merge, and return its output."""
    workspace = find_workspace(name)
    rows = merge.check_inputs(workspace, scores, local_indices, row_starts)
    return prepare_output(out, rows, workspace.geometry.k, workspace.fabric.device)
