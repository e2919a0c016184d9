"""The catalogue of the zoo as Markdown: ``python -m tiebreak.zoo.catalogue > src/tiebreak/zoo/KERNELS.md``."""

from __future__ import annotations

from collections.abc import Iterator

from . import BROKEN_KERNELS, SOUND_KERNELS
from .triton_twins import TRITON_TWINS

_HEAD = """# Kernels of the zoo

Small kernels that the race detector is held to, each with the public case of its mistake. `tiebreak zoo` runs them all
and prints what is reported; `tiebreak zoo NAME` prints the findings of one. Every mistake is an edit of a correct
kernel, so the two differ in nothing else.
"""


def render_catalogue() -> str:
    """Return the text of the catalogue."""
    return "\n".join(_render())


def _render() -> Iterator[str]:
    yield _HEAD
    yield f"## {len(BROKEN_KERNELS) + len(TRITON_TWINS)} broken kernels, each caught at the lines of its mistake\n"
    yield "| kernel | correct twin | rule that it breaks | finding | wrong output under | public case |"
    yield "|---|---|---|---|---|---|"
    for kernel in BROKEN_KERNELS.values():
        twin, found = kernel.original.name, " or ".join(kernel.findings)
        yield _row(kernel.name, twin, kernel.rule, found, kernel.schedule, _link(kernel.source))
    for twins in TRITON_TWINS:
        twin, found = f"Triton: {twins.kernel.fn.__name__}", " or ".join(twins.findings)
        yield _row(twins.name, twin, twins.rule, found, "", _link(twins.source))
    yield f"\n## {len(SOUND_KERNELS) + len(TRITON_TWINS)} correct kernels, of which nothing is reported\n"
    yield "| kernel | what keeps it correct |"
    yield "|---|---|"
    for sound in SOUND_KERNELS.values():
        yield _row(sound.name, sound.summary)
    yield "\nThe Triton kernels above run without their mistake too.\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _link(address: str) -> str:
    """Link with a short text: ``vllm#47348``."""
    parts = address.removeprefix("https://github.com/").split("/")
    return f"[{parts[1]}#{parts[3]}]({address})" if len(parts) == 4 else f"[{parts[2]}]({address})"


if __name__ == "__main__":
    print(render_catalogue(), end="")
