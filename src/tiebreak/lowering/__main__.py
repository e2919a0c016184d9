"""``python -m tiebreak.lowering``: compare what the compilers do now with the manifest, or renew it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from tiebreak.errors import TiebreakError

from .kernels import cutedsl_version, lower_cutedsl, lower_triton, triton_version
from .manifest import COMMAND, PATH, compare, describe_kernels, load_manifest, save_manifest


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit the installed compilers; the exit status is 1 if one of them lowers a flag operation in another way."""
    parser = argparse.ArgumentParser(prog="python -m tiebreak.lowering", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write what the installed compilers do to the manifest")
    options = parser.parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False)
    try:
        found = {
            triton_version(): describe_kernels(lower_triton()),
            cutedsl_version(): describe_kernels(lower_cutedsl()),
        }
        if options.update:
            save_manifest({**(load_manifest() if PATH.exists() else {}), **found})
            return 0
        manifest = load_manifest()
        differences = [text for name, own in found.items() if (text := compare(manifest, name, own))]
    except TiebreakError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for text in differences:
        console.print(text, markup=False)
    if differences:
        console.print(f"If this is right, run: {COMMAND}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
