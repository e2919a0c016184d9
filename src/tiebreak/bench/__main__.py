"""``python -m tiebreak.bench`` is ``tiebreak bench``."""

from tiebreak.bench.command import main

main()
