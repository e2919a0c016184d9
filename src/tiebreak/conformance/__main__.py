"""``python -m tiebreak.conformance record|replay FILE``: golden vectors of instructions.

``record`` runs every case on an NVIDIA device of compute capability 9.0 or later
and writes the file.  ``replay`` runs cases on the PTX machine and prints every
result that is not the device's.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .cases import make_cases
from .recorder import NOT_RECORDED, Device, record
from .replay import compare, measure_error, run_on_machine
from .vectors import read_vectors, write_vectors

_BUFFER_BYTES = 1 << 20


def main() -> int:
    """Run a command; the result is its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tiebreak.conformance", description=__doc__)
    parser.add_argument("command", choices=("record", "replay"))
    parser.add_argument("file", type=Path, help="golden vectors: tests/ptx_vectors.npz")
    parser.add_argument("cases", nargs="*", help="cases to replay, by how their names start; all if none is given")
    options = parser.parse_args()
    return _record(options.file) if options.command == "record" else _replay(options.file, tuple(options.cases))


def _record(path: Path) -> int:
    """Record, write, read back, and print failures and figures."""
    started, cases = time.monotonic(), make_cases()
    vectors = record(Device(_BUFFER_BYTES), cases)
    write_vectors(vectors, cases, path)
    recorded = len(read_vectors(cases, path).results)
    unexpected = {name: why for name, why in vectors.failures.items() if not why.startswith(NOT_RECORDED)}
    for name, why in unexpected.items():
        print(f"FAILED {name}: {why}")
    print(
        f"{vectors.device}, driver {vectors.driver}: {recorded} of {len(cases)} cases recorded,"
        f" {len(unexpected)} failed, {path.stat().st_size} bytes, {time.monotonic() - started:.1f} s"
    )
    return 1 if unexpected or recorded != len(vectors.results) else 0


def _replay(path: Path, wanted: tuple[str, ...]) -> int:
    """Replay, and print what differs: all of it for exact cases, the largest error for approximate ones."""
    cases = make_cases()
    vectors = read_vectors(cases, path)
    replayed = wrong = 0
    for case in cases:
        if case.name not in vectors.results or not case.name.startswith(wanted or ("",)):
            continue
        replayed += 1
        expected, got = vectors.results[case.name], run_on_machine(case)
        if case.approximate:
            error = measure_error(case, expected, got)
            print(f"{case.text} is within {error.units} units in the last place, {error.scaled:.3g}")
            continue
        mismatches = compare(case, expected, got)
        wrong += bool(mismatches)
        for mismatch in mismatches:
            print(mismatch)
    print(f"{replayed} cases replayed, {wrong} with mismatches")
    return 1 if wrong or not replayed else 0


if __name__ == "__main__":
    sys.exit(main())
