# %% [markdown]
# # Digits
#
# Train a generator on 500 of the embedded digits, and look at what it has learnt. It takes half a minute.

# %%
import matplotlib.pyplot as plt

from neurosql import NeuroSQL, data

digits = data.load("mnist-sample", limit=500)
print(digits.describe())

# %% [markdown]
# Two latent dimensions: a plane that can be drawn.

# %%
model = NeuroSQL(latent_dim=2, epochs=10)
model.fit(digits)
print(f"mean loss of digits that were not trained on: {-model.score(digits.test.x[:16, 0]):.3f}")

# %% [markdown]
# Sixteen new digits.

# %%
new = model.sample(16, random_state=0)
sheet = new.reshape(2, 8, 28, 28).transpose(0, 2, 1, 3).reshape(2 * 28, 8 * 28)
plt.figure(figsize=(8, 2))
plt.imshow(sheet, cmap="gray")
plt.axis("off")
plt.show()

# %% [markdown]
# Where the training digits are in the plane, coloured by what they show. The model did not see the labels.

# %%
plt.figure(figsize=(5, 5))
plt.scatter(*model.codes_.T, c=digits.labels, cmap="tab10", s=12)
plt.colorbar(label="digit")
plt.show()
