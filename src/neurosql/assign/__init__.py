"""The assignment between images and lattice rows: `solve` and what builds on it.

`solvers` takes a matrix of all costs, and `candidates` an assignment that is too large for one. `refinement` improves
an assignment among neighbours. `strategies` apply one of them to a block of images, and `start` finds the first
permutation.
"""

from neurosql.assign.solvers import METHODS, Assigner, Assignment, Start, Warm, solve, solve_all

__all__ = ["METHODS", "Assigner", "Assignment", "Start", "Warm", "solve", "solve_all"]
