"""The batches of many streams side by side: one mini-batch of each at every step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lastlayer.training.batches import shuffled_batches
from lastlayer.training.pool import Rules, Stream

Batch = tuple[Tensor, Tensor | None]  # rows (S, n), and shares (S, n) where batches differ in size


def epoch_of_batches(
    streams: Sequence[Stream],
    task: int,
    rules: Rules,
    generators: Sequence[torch.Generator],
    device: torch.device,
) -> list[Batch]:
    """Shuffle one epoch of a task for every stream, and bring its rows to the device at once."""
    batches = [
        [
            stream.tasks[task][positions]
            for _ in range(stream.repeat)
            for positions in shuffled_batches(len(stream.tasks[task]), rules.batch_size, generator)
            if len(positions) > 1 or not rules.skip_single
        ]
        for stream, generator in zip(streams, generators, strict=True)
    ]
    n_steps = max(len(of_stream) for of_stream in batches)
    if not n_steps:
        return []
    sizes = torch.zeros(n_steps, len(streams), dtype=torch.int64)
    rows = torch.zeros(n_steps, len(streams), rules.batch_size, dtype=torch.int64)
    for s, of_stream in enumerate(batches):
        for i, batch in enumerate(of_stream):
            sizes[i, s] = len(batch)
            rows[i, s, : len(batch)] = batch
    real = torch.arange(rules.batch_size) < sizes[..., None]
    share = (real / sizes[..., None].clamp(min=1)).to(device)
    rows = rows.to(device)
    longest = sizes.amax(dim=1).tolist()
    ragged = (sizes != sizes[:, :1]).any(dim=1).tolist()
    widest = max(longest)  # of all ragged steps: one shape, one CUDA graph
    return [
        (rows[i, :, :widest], share[i, :, :widest]) if ragged[i] else (rows[i, :, :n], None)
        for i, n in enumerate(longest)
    ]
