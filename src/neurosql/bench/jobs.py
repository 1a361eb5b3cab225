"""Names of what lies in a folder of results, and of what a run leaves in its own. Nothing here imports torch."""

from __future__ import annotations

JOBS, PICTURES = "jobs", "pictures"
JOB, RESULT, REASON, RUN, LOCK, LOG = "job.json", "result.json", "reason.txt", "run", "lock", "log.txt"
SAMPLES = "samples.npz"
"""`samples` (n, c, h, w) uint8: what a sheet shows of a run."""
PLANE = "plane.npz"
"""`codes` (n, 2), `classes`, and where there are labels `labels` (n,): the latent plane of a run."""
LEFT = (SAMPLES, PLANE)
