"""Check the installed wheel against the checkout that it was built from.

Usage: ``python .ci/check_wheel.py CHECKOUT``, in an environment that holds the
wheel and not the checkout.  Every file of the package must have been installed
as a real file, nothing else may have been, and every module must import.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from importlib import metadata
from pathlib import Path

import tiebreak
from tiebreak.inputs.captured import default_input


def expected_files(checkout: Path) -> set[str]:
    """Files of the package as the checkout has them, relative to site-packages."""
    package = checkout / "src" / "tiebreak"
    roots = {package: Path("tiebreak")} | {checkout / name: Path("tiebreak") / name for name in ("spec", "impl", "sim")}
    return {
        str(target / path.relative_to(root))
        for root, target in roots.items()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def installed_files() -> set[str]:
    """Files of the package as the wheel recorded them."""
    recorded = metadata.files("tiebreak") or []
    return {str(path) for path in recorded if path.parts[0] == "tiebreak" and "__pycache__" not in path.parts}


def main(checkout: Path) -> None:
    """Check the installation; exits with a message at the first problem."""
    location = Path(tiebreak.__file__).resolve().parent
    if location.is_relative_to(checkout / "src"):
        sys.exit(f"tiebreak comes from the checkout, not from a wheel: {location}")
    differing = expected_files(checkout) ^ installed_files()
    if differing:
        sys.exit(f"files only in the checkout or only in the wheel: {sorted(differing)}")
    links = [str(path) for path in location.rglob("*") if path.is_symlink()]
    if links:
        sys.exit(f"installed as links: {links}")
    names = [module.name for module in pkgutil.walk_packages(tiebreak.__path__, "tiebreak.")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    print(f"{len(installed_files())} files, {len(names)} modules; {default_input()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
