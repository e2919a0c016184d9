"""Executable NumPy specification of the global top-K merge.

The specification is slow on purpose and complete on purpose.  It says what
every rank must return when each of W ranks holds a part of every row, keeps
its local top-K, and exchanges K candidates with every other rank.  Read the
modules in this order; each one uses only the ones above it:

1. ``order``: the total order on (score, id), its policies and its key.
2. ``selection``: the top-K of gathered candidates.
3. ``contracts``: what a caller may rely on, and how a violation reads.
4. ``layout``: which rank owns which global id.
5. ``packing``: candidates as memory, the gathered layouts, localisation.
6. ``merge``: local top-K, exchange and selection composed.
7. ``theorem``: when exchanging K per rank is exact, checked exhaustively.
8. ``protocol``: the flags and slots of the exchange, and its named variations.
9. ``search``: breadth-first search through the states of a protocol.
10. ``exchange``: that protocol as a transition system, explored.
11. ``fused``: the exchange in one kernel, whose rows are messages, explored.

Every public operation is documented under the same four headings, present
even when there is little to say: Meaning, Shapes, Errors, Source.  Import the
modules, not names out of this package: ``from tiebreak.spec import merge`` is
the module, and nothing is re-exported here that could hide one.
"""
