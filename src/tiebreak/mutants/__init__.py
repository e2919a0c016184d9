"""Named mutants: one protocol or selection rule broken each, and the scenario that must notice."""
