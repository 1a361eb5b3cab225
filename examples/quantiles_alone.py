# %% [markdown]
# # Multivariate quantiles alone
#
# Ranks, contours and lattices of laws in several dimensions, without any generator.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

from neurosql import prior

normal = prior.Normal(2)
z = normal.sample(2000, torch.Generator().manual_seed(0))
rank = normal.to_ball(z).norm(dim=1)
for q in (0.25, 0.5, 0.9):
    print(f"the contour of order {q} encloses {(rank <= q).double().mean():.3f} of a sample")

# %% [markdown]
# A lattice is a sample without gaps and clumps: means over it are closer to the truth. The mean of |z|^2 is 2.

# %%
for n in (100, 1000):
    by_lattice, by_chance = normal.lattice(n), normal.sample(n, torch.Generator().manual_seed(1))
    print(
        n,
        *(
            f"{name} {abs((p**2).sum(1).mean() - 2):.4f}"
            for name, p in (("lattice", by_lattice), ("random", by_chance))
        ),
    )

# %% [markdown]
# Any law that can be sampled has quantiles. Rows are ordered from the centre outwards.


# %%
def ring(n, generator):
    """Points near a circle."""
    angle = 2 * np.pi * torch.rand(n, generator=generator, dtype=torch.float64)
    radius = 1 + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


lattice = prior.Sampled(ring, dim=2, draws=1000).lattice(100).numpy()
plt.figure(figsize=(4, 4))
plt.scatter(*lattice.T, c=np.arange(100), s=15)
plt.colorbar(label="from the centre outwards")
plt.show()
