"""Names of files in a folder of results, and in the folder of each run. Nothing here imports torch."""

from __future__ import annotations

JOBS, PICTURES = "jobs", "pictures"
JOB, RESULT, REASON, RUN, LOCK, LOG = "job.json", "result.json", "reason.txt", "run", "lock", "log.txt"
SAMPLES = "samples.npz"
"""`samples` (n, c, h, w) uint8: what a sheet shows of a run."""
PLANE = "plane.npz"
"""`codes` (n, 2), `classes` and, if there are labels, `labels` (n,): the latent plane of a run."""
LEFT = (SAMPLES, PLANE)
