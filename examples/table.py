# %% [markdown]
# # A table
#
# Rows of numbers in the place of images. Columns are standardised for training, and samples come back in the original
# units: a data frame if a data frame was given, within the range of each column, whole numbers whole.

# %%
import pandas as pd
from sklearn.datasets import load_wine

from neurosql import NeuroSQL

wine = load_wine(as_frame=True)
table = wine.data[["alcohol", "malic_acid", "magnesium", "color_intensity", "proline"]]
print(table.describe().loc[["min", "mean", "max"]].round(1))

# %%
model = NeuroSQL(latent_dim=2, preset="plain", epochs=100).fit(table)
new = model.sample(500, random_state=0)
print(new.head())
print(pd.concat({"real": table.mean(), "samples": new.mean()}, axis=1).round(2))

# %% [markdown]
# Do the columns hang together as they do in the real table? Compare a few correlations.

# %%
pairs = [("alcohol", "proline"), ("alcohol", "color_intensity"), ("malic_acid", "proline")]
for first, second in pairs:
    real, made = table[first].corr(table[second]), new[first].corr(new[second])
    print(f"{first} and {second}: {real:+.2f} in the table, {made:+.2f} in the samples")
