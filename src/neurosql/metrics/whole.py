"""Scores that look at everything an evaluation has. Their functions take the context."""

from __future__ import annotations

from neurosql.metrics.context import Context
from neurosql.metrics.measure import Measure
from neurosql.metrics.records import ScoreRecord


def measure(context: Context, records: list[ScoreRecord]) -> None:
    """Call each function once. It returns a value, or values by score; each of these may be values by mode."""
    for name, found in context.call(records, {"context": context}).items():
        record = next(record for record in records if record.name == name)
        by_mode = found if isinstance(found, dict) else {record.modes[0]: found}
        for mode, value in by_mode.items():
            context.add(record, Measure.of(value), mode, context.options.samples)
