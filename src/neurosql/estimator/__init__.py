"""`NeuroSQL(...).fit / transform / inverse_transform / sample`, as scikit-learn users expect."""

from neurosql.estimator.neurosql import NeuroSQL

__all__ = ["NeuroSQL"]
