"""Small streams with known answers."""

import torch

import lastlayer as ll


def blobs(n=400, n_classes=4, h=6, noise=0.5, seed=0, **columns):
    """Classes around means of their own: what any head can learn."""
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % n_classes
    means = 2 * torch.randn(n_classes, h, generator=random)
    z = means[y] + noise * torch.randn(n, h, generator=random)
    return ll.Features.from_arrays(z, y, test=(z[: n // 4] + 0.01, y[: n // 4]), **columns)


def noise(n=600, n_classes=5, h=8, seed=1):
    """Labels that have nothing to do with the features."""
    random = torch.Generator().manual_seed(seed)
    z = torch.randn(n, h, generator=random)
    return ll.FeatureSet(z, {"y": torch.randint(0, n_classes, (n,), generator=random)})
