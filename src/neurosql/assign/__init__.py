"""The assignment between images and lattice rows: `solve` and what stands on it.

`solvers` solves a matrix of all costs, `candidates` an assignment too large for one; `strategies` say which of them a
block of images takes, and `start` finds the first permutation.
"""

from neurosql.assign.solvers import METHODS, Assigner, Assignment, Start, Warm, solve, solve_all

__all__ = ["METHODS", "Assigner", "Assignment", "Start", "Warm", "solve", "solve_all"]
