# %% [markdown]
# # A folder of your own
#
# From files on disk to a page. To have some files, this example paints them: discs and squares of 24 x 24 pixels, in
# one folder per class. Put the path of your own folder in the place of `FOLDER`.

# %%
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

PLACE = Path(tempfile.mkdtemp(prefix="neurosql-"))
FOLDER = PLACE / "shapes"
random = np.random.default_rng(0)
for kind in ("disc", "square"):
    (FOLDER / kind).mkdir(parents=True)
    for i in range(100):
        picture = Image.new("L", (24, 24))
        left, top = (int(c) for c in random.integers(1, 10, 2))
        box = (left, top, left + 12, top + 12)
        shade = int(random.integers(120, 256))
        draw = ImageDraw.Draw(picture)
        (draw.ellipse if kind == "disc" else draw.rectangle)(box, fill=shade)
        picture.save(FOLDER / kind / f"{i:03d}.png")

# %% [markdown]
# How the program reads it:

# %%
from neurosql import app, data, presets
from neurosql.settings import DataSettings

print(data.load(FOLDER).describe())

# %% [markdown]
# Train, as `neurosql train` does: the run folder has the model, pictures and a page.

# %%
RUN = PLACE / "run"
settings = presets.settings(epochs=10, generator="mlp")
app.train(str(FOLDER), settings, RUN, DataSettings())
print(sorted(path.name for path in RUN.iterdir()))

# %% [markdown]
# Judge it, on images that it has not seen. Two hundred pictures are few, so intervals are wide.

# %%
from neurosql.evaluate import Options

scores = app.evaluate(RUN, options=Options(samples=64, image_pairs=16))
print(scores.found.memorisation.sentence())
print(f"the page: {RUN / 'report.html'}")
