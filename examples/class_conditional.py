# %% [markdown]
# # One class at a time
#
# A class-conditional model gives each class its own part of the lattice. You then choose which class a sample has.

# %%
import matplotlib.pyplot as plt
import numpy as np

from neurosql import NeuroSQL, data

digits = data.load("mnist-sample", limit=500)
model = NeuroSQL(latent_dim=2, conditional=True, epochs=10).fit(digits)

# %% [markdown]
# Six samples of each of three classes.

# %%
rows = [np.concatenate(list(model.sample(6, label=label, random_state=0)), axis=1) for label in ("3", "5", "8")]
plt.figure(figsize=(6, 3))
plt.imshow(np.concatenate(rows), cmap="gray")
plt.axis("off")
plt.show()

# %% [markdown]
# A code means something within each class: position in the plane is the style, the class says what is written. Here is
# one code, written as each of the ten digits.

# %%
code = np.zeros((10, 2), dtype=np.float32)
same_style = model.inverse_transform(code, digits.classes)
plt.figure(figsize=(10, 1))
plt.imshow(np.concatenate(list(same_style), axis=1), cmap="gray")
plt.axis("off")
plt.show()
