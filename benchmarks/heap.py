"""Time training on large images with blocks of memory kept by the program, as a ratio to giving them back each time.

    python benchmarks/heap.py [--pixels 128] [--images 200] [--rounds 5]

Each round trains the same model in a process of each kind, one after the other and on one thread. The figures are
medians over rounds of the ratios within a round, of CPU seconds (which other processes hardly disturb) and of peak
memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

TRAIN = """
import json, resource, sys
import numpy as np, torch
import neurosql
from neurosql import heap
kept, pixels, images = (int(word) for word in sys.argv[1:])
if kept and not heap.keep_blocks():
    sys.exit("this system does not let programs choose")
torch.set_num_threads(1)
x = np.random.default_rng(0).random((images, pixels // 8, pixels // 8, 3), np.float32).repeat(8, 1).repeat(8, 2)
neurosql.fit(x, preset="photographs", epochs=3)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pixels", type=int, default=128)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    ratios: list[tuple[float, float]] = []
    for _ in range(given.rounds):
        used = []
        for kept in ("0", "1"):
            words = [sys.executable, "-c", TRAIN, kept, str(given.pixels), str(given.images)]
            used.append(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))
        ratios.append((used[1][0] / used[0][0], used[1][1] / used[0][1]))
    seconds, memory = (statistics.median(column) for column in zip(*ratios))
    print(f"{given.pixels} pixels, {given.images} images: CPU seconds {seconds:.2f}, peak memory {memory:.2f}")


if __name__ == "__main__":
    main()
