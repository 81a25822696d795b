"""A group: many learners that take their steps as one network, in one CUDA graph on a GPU."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from lastlayer.layers import Layer
from lastlayer.layers.mask import Keep
from lastlayer.replay.training.grouped_net import GroupedNet
from lastlayer.replay.training.learner import Learner
from lastlayer.replay.training.recorder import Recorder
from lastlayer.replay.training.stack import HEAD, Stack


@dataclass(frozen=True)
class Heads:
    """Those of the first networks that share one kind of layer and mask."""

    layer: Layer
    keep: Keep
    rows: Tensor  # which they are

    def loss(self, z: Tensor, one_hot: Tensor, y: Tensor, tensors: dict[str, Tensor]) -> Tensor:
        """Return the sum of the networks' losses.

        Args:
            z: (n, batch, h) features of all.
            one_hot: (n, N, batch) targets of all.
            y: (n, batch) their classes.
            tensors: parameters of all layers, each (n, …).
        """
        own = [name for name, _ in self.layer.named_parameters()]
        parts = {name: tensors[HEAD + name].index_select(0, self.rows) for name in own}
        logits: Tensor = functional_call(self.layer, parts, z.index_select(0, self.rows))
        logits = logits * self.keep(one_hot.index_select(0, self.rows)).mT
        classes = y.index_select(0, self.rows).flatten()
        return functional.cross_entropy(logits.flatten(0, 1), classes, reduction="sum")


class Group:
    """Trains some learners through their epochs; one that runs out of batches stands still.

    Args:
        learners: those with more full batches in an epoch come first.
        net: their backbones as one.
        batch_size: of every step. A last smaller batch is left to the learner alone.
    """

    def __init__(self, learners: Sequence[Learner], net: GroupedNet, batch_size: int) -> None:
        self.learners, self.net, self.batch_size = learners, net, batch_size
        self.pool, self.precision = learners[0].pool, learners[0].precision
        self.stack = Stack(learners, net)
        self.rows = self.stack.rows()
        self.optimizer = learners[0].make_optimizer(self.rows)
        for number, row in enumerate(self.rows):
            self.optimizer.state[row] = self.stack.state_of(number)
        device = self.pool.x.device
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.batches = torch.zeros(0, dtype=torch.int64, device=device)
        self.recorder = Recorder(device)
        self.heads: dict[int, list[Heads]] = {}

    def take_epoch(self, orders: Sequence[Tensor]) -> None:
        """Train on an epoch's rows; a last batch of a single image is left out."""
        full = [len(order) // self.batch_size for order in orders]
        self._lay_out(orders, full)
        self.stack.share_steps()
        self.recorder.begin()
        for step in range(max(full, default=0)):
            n = sum(n > step for n in full)
            self.recorder.take(partial(self.step, n), n)
        self.recorder.end()
        self.stack.share_steps()
        for learner, order, n in zip(self.learners, orders, full, strict=True):
            last = order[n * self.batch_size :]
            if len(last) > 1:
                learner.step(last.to(self.pool.y.device))

    def _lay_out(self, orders: Sequence[Tensor], full: Sequence[int]) -> None:
        """Bring an epoch's batches to the device: (steps, networks, batch)."""
        shape = (max(full, default=0), len(orders), self.batch_size)
        batches = torch.zeros(shape, dtype=torch.int64)
        for number, (order, n) in enumerate(zip(orders, full, strict=True)):
            batches[:n, number] = order[: n * self.batch_size].view(n, self.batch_size)
        if self.batches.shape != batches.shape:  # a graph would go on reading the old ones
            self.recorder.forget()
            self.batches = torch.empty_like(batches, device=self.at.device)
        self.batches.copy_(batches)
        self.at.zero_()

    def step(self, n: int) -> None:
        """Train the first n networks on the next batch; nothing here waits for a GPU."""
        rows = self.batches.index_select(0, self.at)[0, :n].mT  # (batch, n)
        self.at += 1
        tensors = self.stack.tensors(n, self.precision)
        loss = self._loss(rows, tensors, n)
        self._move(self.stack.gradient(loss, tensors, n))

    def _loss(self, rows: Tensor, tensors: dict[str, Tensor], n: int) -> Tensor:
        """Return the sum of all networks' mean losses."""
        x = self.pool.batch(rows).flatten(1, 2)
        if self.precision.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        backbone = {name: own for name, own in tensors.items() if not name.startswith(HEAD)}
        with self.precision.casting(x.device):
            z = self.net(x, backbone)
        z = z.to(self.pool.shift.dtype).unflatten(1, (n, -1)).transpose(0, 1)
        y = self.pool.y[rows].mT
        one_hot = functional.one_hot(y, self.pool.n_classes).mT
        losses = [heads.loss(z, one_hot, y, tensors) for heads in self._heads(n)]
        return torch.stack(losses).sum() / self.batch_size

    def _heads(self, n: int) -> list[Heads]:
        """Sort the first n by layer and mask, once: no index may be copied while recording."""
        if n not in self.heads:
            kinds: dict[tuple[type[Layer], Keep], list[int]] = defaultdict(list)
            for number, learner in enumerate(self.learners[:n]):
                kinds[type(learner.layer), learner.keep].append(number)
            self.heads[n] = [
                Heads(self.learners[own[0]].layer, keep, torch.tensor(own, device=self.at.device))
                for (_, keep), own in kinds.items()
            ]
        return self.heads[n]

    @torch.no_grad()
    def _move(self, gradient: Tensor) -> None:
        """Let each of the first networks take a step along its own gradient, a row of (n, P)."""
        n = len(gradient)
        clip = self.learners[0].clip
        if clip is not None:  # as torch.nn.utils.clip_grad_norm_ does
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient *= (clip / (norm + 1e-6)).clamp(max=1.0)
        for number, row in enumerate(self.rows):
            row.grad = gradient[number] if number < n else None
        self.optimizer.step()
        counts = [own[:n] for name, own in self.stack.buffers.items() if own.dim() == 1]
        if counts:
            torch._foreach_add_(counts, 1)
