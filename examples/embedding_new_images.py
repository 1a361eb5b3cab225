# %% [markdown]
# # Codes for new images
#
# There is no encoder. Codes of images that were not trained on are found by a search, and `transform` does it, so the
# model fits into a scikit-learn pipeline.

# %%
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from neurosql import NeuroSQL

bunch = load_digits()
images = (bunch.images / 16).astype(np.float32)  # 8 x 8 pixels in [0, 1]
train, test, known, wanted = train_test_split(images[:400], bunch.target[:400], test_size=100, random_state=0)

# %%
model = NeuroSQL(latent_dim=3, generator="mlp", width=64, epochs=20).fit(train)
codes = model.transform(test)
again = model.inverse_transform(codes)
print(f"{len(codes)} codes; the decoded images are off by {np.abs(again - test).mean():.3f} per pixel on average")

# %% [markdown]
# Between two images: a straight line through the latent space.

# %%
line = model.interpolate(test[0], test[1], steps=5)
print("from one image to another:", line.shape)

# %% [markdown]
# A classifier on the codes, as a pipeline, and a search over one of the model's arguments.

# %%
pipeline = make_pipeline(
    NeuroSQL(generator="mlp", width=64, epochs=10, preset="plain"), KNeighborsClassifier(n_neighbors=5)
)
search = GridSearchCV(pipeline, {"neurosql__latent_dim": [2, 4]}, cv=2).fit(train, known)
print("the best number of latent dimensions:", search.best_params_, f"accuracy {search.score(test, wanted):.2f}")
