"""Finding a target by its name on the command line."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch import Tensor

from tiebreak.errors import InputError
from tiebreak.target.adapters import ADAPTERS

Target = Callable[[Tensor, Tensor, int], Any]
"""``(scores float32[N], ids int32[N], k) -> k ids``."""


def load_target(name: str) -> Target:
    """Import a target.

    Args:
        name: ``module:attribute``, where the attribute may be dotted, or a
            spelling in ``adapters.ADAPTERS`` such as ``torch:topk``.

    Raises:
        InputError: The name has another form, the import fails, the attribute
            is not there, or it cannot be called.
    """
    module_name, colon, attributes = ADAPTERS.get(name, name).partition(":")
    if not (module_name and colon and attributes):
        raise InputError("target", value=name, limit="must be module:attribute", remedy="name it as package.module:f")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        limit = f"module {module_name} cannot be imported: {type(error).__name__}: {error}"
        remedy = "install it, or put its folder on PYTHONPATH"
        raise InputError("target", value=name, limit=limit, remedy=remedy) from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise InputError("target", value=name, limit=f"there is no {attribute} in it", remedy="check the spelling")
        found = getattr(found, attribute)
    if not callable(found):
        limit = "must be callable as (scores, ids, k)"
        raise InputError("target", value=name, limit=limit, remedy="name a function")
    target: Target = found
    return target
