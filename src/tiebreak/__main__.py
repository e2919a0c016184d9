"""``python -m tiebreak`` is the ``tiebreak`` command."""

from tiebreak.cli import main

main()
