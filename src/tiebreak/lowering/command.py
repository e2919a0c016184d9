"""``tiebreak lowering``: compare what the installed compilers do with the manifest, or renew it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from tiebreak.impl.kernel_store import find_compiler

from .kernels import cutedsl_version, lower_cutedsl, lower_triton, triton_version
from .manifest import COMMAND, Entry, compare, describe_kernels, load_manifest, save_manifest


def audit_lowering(update: bool, console: Console) -> int:
    """Audit the installed compilers, and return the exit status: 1 if one does other than the manifest says.

    Args:
        update: Write what they do to the manifest instead.
        console: Where to print.

    Raises:
        InputError: The manifest knows nothing of a compiler.
    """
    found = dict(_describe_compilers())
    left_out = "" if find_compiler() else "; CuTeDSL is not installed, and its part stays unchecked"
    if update:
        save_manifest({**load_manifest(), **found})
        console.print(f"written: {', '.join(found)}{left_out}")
        return 0
    manifest = load_manifest()
    differences = [text for name, own in found.items() if (text := compare(manifest, name, own))]
    for text in differences:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    operations = sum(
        entry["times"] * len(entry["targets"]) for own in found.values() for kernel in own.values() for entry in kernel
    )
    verdict = f"differs; if this is right, run: {COMMAND}" if differences else "as the manifest says"
    console.print(f"{operations} flag operations of {', '.join(found)}: {verdict}{left_out}", markup=False)
    return 1 if differences else 0


def _describe_compilers() -> Iterator[tuple[str, dict[str, list[Entry]]]]:
    """Yield the entries of each compiler that is installed."""
    yield triton_version(), describe_kernels(lower_triton())
    if find_compiler() is not None:
        yield cutedsl_version(), describe_kernels(lower_cutedsl())
