"""What becomes of every sample of a source, as one sum."""

from __future__ import annotations

from neurosql.data.imageset import ImageSet
from neurosql.data.listing import Reading


def account(images: ImageSet, trained: int | None = None, validation: int | None = None) -> str:
    """All samples of a source as a sum: `800 = 640 to train on + 80 for validation + 80 for the test`.

    Samples that can't be read, and those that a limit or a split leaves out, are terms of it. `trained` and
    `validation` are the numbers that a run really uses, if they are not those of the parts.
    """
    reading = images.reading or Reading("array")
    sizes = {name: len(part) for name, part in images.parts.items()}
    read = sum(sizes.values())
    trained = sizes["train"] if trained is None else trained
    validation = sizes.get("validation", 0) if validation is None else validation
    test = sizes.get("test", 0)
    limit = reading.settings.get("limit")
    terms = {
        "to train on": trained,
        "for validation": validation,
        "for the test": test,
        "of classes that are not trained on": read - trained - validation - test,
        "that can't be read": len(reading.skipped),
        f"left out by {f'--limit {limit}' if limit else 'the split'}": reading.undrawn,
    }
    words = " + ".join(f"{count:,} {what}" for what, count in terms.items() if count or what == "to train on")
    return f"{sum(terms.values()):,} = {words}"
