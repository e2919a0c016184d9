"""What compilers make of the flag operations: audited per compiler and target, kept as a manifest."""
