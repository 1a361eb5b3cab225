# %% [markdown]
# # The engine alone
#
# Cost matrices of images and linear assignments, without any generator.

# %%
import torch

from neurosql import assign, cost, data

digits = torch.from_numpy(data.load("mnist-sample", limit=400).x)
x, y = digits[:200], digits[200:400]

# %%
matrix = cost.matrix(x, y)  # 1/2 (1 - SSIM) + 1/2 mean absolute difference, of all pairs
best = assign.solve(matrix)
print(f"{matrix.shape[0]} x {matrix.shape[1]} pairs, mean cost {best.cost:.4f}, exact {best.exact}")

# %% [markdown]
# Greedy is faster, and its dual variables say how far it may be from the optimum, without computing the optimum.

# %%
greedy = assign.solve(matrix, "greedy")
print(f"greedy: mean cost {greedy.cost:.4f}; it is above the optimum by at most {greedy.gap:.4f}")
print(f"in truth by {greedy.cost - best.cost:.4f}")

# %% [markdown]
# When costs change slowly, an `Assigner` starts where the last assignment ended.

# %%
assigner = assign.Assigner()
generator = torch.Generator().manual_seed(0)
for _ in range(3):
    found = assigner(matrix)
    print(f"mean cost {found.cost:.4f}, exact {found.exact}")
    matrix = matrix + 0.005 * torch.rand(matrix.shape, generator=generator)
