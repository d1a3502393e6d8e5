"""Which two pages match: distances, and the permutation tables."""
