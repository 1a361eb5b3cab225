"""What is known about the columns of a table, and how samples are made to look like its rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neurosql.errors import InputError


@dataclass(frozen=True)
class Columns:
    """The columns of a table: ranges, which hold whole numbers only and, of a data frame, names and types."""

    low: np.ndarray
    """(p,) float64: the smallest value of each column."""
    high: np.ndarray
    """(p,) float64: the largest value of each column."""
    whole: np.ndarray
    """(p,) bool: columns of whole numbers."""
    names: tuple[str, ...] = ()
    """Names of the columns, if they came with the table."""
    types: tuple[str, ...] = ()
    """Their types, as pandas names them."""

    @classmethod
    def of(cls, values: np.ndarray, names: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Columns:
        """The columns of values (n, p) float64, n at least 1."""
        return cls(values.min(0), values.max(0), (values == np.round(values)).all(0), names, types)

    def settled(self, values: np.ndarray) -> np.ndarray:
        """Values (n, p) as they could stand in the table: within each column's range, and rounded in whole columns."""
        values = np.clip(values, self.low, self.high)
        return np.where(self.whole, np.round(values), values)

    def within(self, part: Columns) -> Columns:
        """The columns of some of the rows, whose values `part` has up to rounding errors."""
        low, high = (np.where(self.whole, np.round(v), v) for v in (part.low, part.high))
        return replace(self, low=np.clip(low, self.low, self.high), high=np.clip(high, self.low, self.high))

    def joined(self, other: Columns) -> Columns:
        """The columns of both tables together, with the names of this one."""
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return replace(self, low=low, high=high, whole=self.whole & other.whole)

    def frame(self, values: np.ndarray) -> Any:
        """Rows (n, p) as a pandas data frame, with the names and types of the table where they are known."""
        pandas = _pandas()
        names = list(self.names) or [f"x{i}" for i in range(values.shape[1])]
        frame = pandas.DataFrame(values, columns=names)
        return frame.astype(dict(zip(names, self.types))) if self.types and len(set(names)) == len(names) else frame


def named(x: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and types of the columns of a pandas data frame; none of anything else."""
    if not is_frame(x):
        return (), ()
    return tuple(map(str, x.columns)), tuple(map(str, x.dtypes))


def is_frame(x: Any) -> bool:
    """Whether x is a pandas data frame; pandas is not imported for that."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, getattr(pandas, "DataFrame", ()))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise InputError("data frames need pandas: pip install pandas, or ask for arrays") from None
    return pandas
