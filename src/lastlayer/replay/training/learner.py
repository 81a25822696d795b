"""A learner: one network with one of our layers on top, trained end to end."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, Optimizer

from lastlayer.core.names import look_up
from lastlayer.errors import OptionError, ShapeError
from lastlayer.layers import LAYERS, MASKS, Layer
from lastlayer.replay.training.image_pool import ImagePool
from lastlayer.replay.training.replay_stream import START, generator_for
from lastlayer.replay.training.training_options import PRECISIONS, STARTS, TrainingOptions

TEST_BATCH = 5000

MakeBackbone = Callable[[], nn.Module]  # images (n, channels, height, width) → features (n, h)
MakeOptimizer = Callable[[Iterable[nn.Parameter], float, bool], Optimizer]


def _adam(parameters: Iterable[nn.Parameter], lr: float, on_gpu: bool) -> Optimizer:
    return Adam(parameters, lr=lr, fused=on_gpu, capturable=on_gpu)


def _sgd(parameters: Iterable[nn.Parameter], lr: float, on_gpu: bool) -> Optimizer:
    return SGD(parameters, lr=lr, momentum=0.9, fused=on_gpu)


OPTIMIZERS: Mapping[str, MakeOptimizer] = {"adam": _adam, "sgd": _sgd}


@dataclass(frozen=True)
class Network:
    """What distinguishes one network of a run from another."""

    layer: str = "linear"
    mask: str = "none"
    balance: float = 1.0  # instances of an old class in an epoch, for each of a new one
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the names and numbers."""
        if "+" in self.layer:
            layer, _, mask = self.layer.partition("+")
            raise OptionError(
                f"layer must have no mask in it, got '{self.layer}': "
                f"write Network('{layer}', '{mask}')"
            )
        look_up(self.layer, LAYERS, "layer")
        look_up(self.mask, MASKS, "mask")
        if not 0 <= self.balance < math.inf:
            raise OptionError(f"balance must be at least 0 and finite, got {self.balance}")
        if self.seed < 0:
            raise OptionError(f"seed must be at least 0, got {self.seed}")
        object.__setattr__(self, "balance", float(self.balance))  # one name for 1 and 1.0

    def __str__(self) -> str:
        """Name it, for people and for folders."""
        return f"{self.layer}+{self.mask}-balance-{self.balance}-seed-{self.seed}"


class Learner:
    """Takes training steps, and computes features and predictions for the test images.

    The seed decides the first weights: the backbone's are the same for every layer and mask.
    """

    def __init__(
        self,
        network: Network,
        pool: ImagePool,
        make_backbone: MakeBackbone,
        optimizer: str,
        lr: float,
        options: TrainingOptions = TrainingOptions(),  # noqa: B008  (frozen)
    ) -> None:
        self.pool, self.keep, self.clip = pool, MASKS[network.mask], options.clip
        self.precision, start = PRECISIONS[options.precision], STARTS[options.start]
        with torch.random.fork_rng(devices=[]):
            first = generator_for(START, network.seed).initial_seed()
            torch.default_generator.manual_seed(first)  # and not those of GPUs
            backbone = make_backbone()
            start.backbone(backbone)
            backbone.to(pool.shift)
            self.layer: Layer = start.layers[network.layer](_size(backbone, pool), pool.n_classes)
        self.layer.to(pool.shift)
        parts = OrderedDict[str, nn.Module](backbone=backbone, layer=self.layer)
        self.net = nn.Sequential(parts)
        make, on_gpu = OPTIMIZERS[optimizer], pool.x.is_cuda
        self.make_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = lambda parameters: (
            make(parameters, lr, on_gpu)
        )
        self.optimizer = self.make_optimizer(self.net.parameters())

    def restart(self) -> None:
        """Clear the optimizer's state in place, because a recorded step keeps using its tensors."""
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def prime(self) -> None:
        """Create the optimizer's state as its first step would, without taking one."""
        known = self.optimizer.state
        new = [part for part in self.net.parameters() if part not in known]
        self.optimizer.zero_grad()
        for part in new:
            part.grad = torch.zeros_like(part)  # which moves nothing
        self.optimizer.step()
        self.optimizer.zero_grad()
        for value in (value for part in new for value in known[part].values()):
            value.zero_()

    def step(self, rows: Tensor) -> None:
        """Train on one batch of the pool's rows; nothing here waits for a GPU."""
        y = self.pool.y[rows]
        one_hot = functional.one_hot(y, self.pool.n_classes).mT
        with self.precision.casting(y.device):
            z = self.net[0](self.pool.batch(rows))
        logits = self.layer(z.to(self.pool.shift.dtype))
        loss = functional.cross_entropy(logits * self.keep(one_hot).mT, y)
        self.optimizer.zero_grad()
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.optimizer.step()

    @torch.no_grad()
    def features(self) -> Tensor:
        """Return the features of the test images, as the layer sees them: (m, h)."""
        self.net.eval()
        backbone = self.net[0]
        last = self.precision.channels_last
        form = torch.channels_last if last else torch.contiguous_format
        parts = map(self.pool.normalised, self.pool.test_x.split(TEST_BATCH))
        z = torch.cat([backbone(part.contiguous(memory_format=form)) for part in parts])
        self.net.train()
        return z

    @torch.no_grad()
    def right(self) -> Tensor:
        """Count the right answers of each class (N,); −1 if training diverged."""
        logits = self.layer(self.features())
        hits = self.pool.test_y[logits.argmax(dim=1) == self.pool.test_y]
        counts = torch.bincount(hits, minlength=self.pool.n_classes)
        return torch.where(logits.isfinite().all(), counts, -1).cpu()


@torch.no_grad()
def _size(backbone: nn.Module, pool: ImagePool) -> int:
    """Find the size of a backbone's features by looking at two images."""
    z = backbone.eval()(pool.normalised(pool.test_x[:2]))
    backbone.train()
    if not isinstance(z, Tensor) or z.dim() != 2:
        got = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise ShapeError(f"a backbone must return features (n, h), got {got}")
    return z.shape[1]
