"""The tables of bench pages."""

from neurosql.metrics.column import paired_heldout, paired_train, sampled
from neurosql.report import tables


def test_wide_tables_are_divided_by_mode_and_nothing_is_lost():
    columns = [
        sampled("kid", "vgg"),
        *(sampled(name, "classifier") for name in ("frechet", "kid", "recall", "coverage")),
    ]
    columns += [sampled(name) for name in ("lpips", "ssim", "suspiciously close")]
    columns += [paired_train("ssim"), paired_train("lpips"), paired_heldout("ssim")]
    places = [*columns[:6], "lpips", *columns[6:9], "ssim", *columns[9:]]
    parts = tables.in_parts(places)
    assert [place for part in parts for place in part] == places
    assert all(len(part) <= tables.ACROSS for part in parts)
    assert not any({"sampled", "paired-train"} <= {p.mode for p in part if not isinstance(p, str)} for part in parts)
    first = next(part for part in parts if columns[8] in part)
    assert first[first.index(columns[8]) + 1] == "ssim"
    assert tables.in_parts(columns[:5]) == [columns[:5]]
