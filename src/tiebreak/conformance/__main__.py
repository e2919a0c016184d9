"""``python -m tiebreak.conformance FILE`` records golden vectors on an NVIDIA device of compute capability 9.0.

It prints one line of figures, every failure, and every case that the CPU gives
other results for.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .cases import make_cases
from .recorder import NOT_RECORDED, Device, record
from .vectors import read_vectors, write_vectors


def main() -> int:
    """Record, write, read back, and report."""
    parser = argparse.ArgumentParser(prog="python -m tiebreak.conformance", description=__doc__)
    parser.add_argument("file", type=Path, help="file to write: tests/ptx_vectors.npz")
    path = parser.parse_args().file
    started, cases = time.monotonic(), make_cases()
    vectors = record(Device(1 << 20), cases)
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


if __name__ == "__main__":
    sys.exit(main())
