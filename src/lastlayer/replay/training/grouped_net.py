"""Many backbones as one of grouped convolutions: activations (batch, networks · channels, h, w).

Convolutions become grouped, batch norms one over all channels, linear layers batched products.
Whatever else a backbone computes must treat each channel by itself, as ReLU, pooling and sums do;
whether it does is tested on noise.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

TRIED = 4  # images that a backbone is tried out on


class Part(NamedTuple):
    """How a tensor of one network becomes part of a tensor for all."""

    shape: torch.Size  # of one
    merged: bool  # into the first dimension, as grouped convolutions want it; else stacked
    kernel: bool  # of a convolution

    def shape_of(self, n: int) -> tuple[int, ...]:
        """Return the shape of n."""
        return (n * self.shape[0], *self.shape[1:]) if self.merged else (n, *self.shape)


class _Grouped(nn.Module):
    """A module that is given its tensors before it is called."""

    weight: Tensor
    bias: Tensor | None = None


class _Conv(_Grouped):
    def __init__(self, one: nn.Conv2d) -> None:
        super().__init__()
        self.stride, self.padding, self.dilation = one.stride, one.padding, one.dilation
        self.pointwise = one.kernel_size == (1, 1) and one.padding == (0, 0) and one.bias is None

    def forward(self, x: Tensor) -> Tensor:
        groups = x.shape[1] // self.weight.shape[1]
        if self.pointwise and groups > 1:
            return self._product(x, groups)
        return functional.conv2d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, groups
        )

    def _product(self, x: Tensor, groups: int) -> Tensor:
        """Convolve by a product per pixel: cuDNN takes groups one by one, 2 to 4 times as long."""
        down, across = self.stride
        pixels = x[:, :, ::down, ::across].permute(0, 2, 3, 1)  # (batch, height, width, channels)
        apart = pixels.reshape(-1, groups, self.weight.shape[1]).transpose(0, 1)
        kernels = self.weight.flatten(1).unflatten(0, (groups, -1))
        y: Tensor = (apart @ kernels.mT).transpose(0, 1)
        return y.reshape(*pixels.shape[:3], -1).permute(0, 3, 1, 2)


class _Norm(_Grouped):
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, one: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight = self.bias = None  # type: ignore[assignment]  # there may be none
        self.momentum, self.eps = one.momentum, one.eps

    def forward(self, x: Tensor) -> Tensor:
        mean, var, momentum = self.running_mean, self.running_var, self.momentum or 0.0
        return functional.batch_norm(
            x, mean, var, self.weight, self.bias, training=True, momentum=momentum, eps=self.eps
        )


class _Linear(_Grouped):
    def forward(self, x: Tensor) -> Tensor:
        apart = x.unflatten(1, (len(self.weight), -1)).transpose(0, 1)  # (networks, batch, in)
        y: Tensor = apart @ self.weight.mT
        if self.bias is not None:
            y = y + self.bias.unsqueeze(1)
        return y.transpose(0, 1).flatten(1)


class GroupedNet:
    """The training pass of many backbones of one kind as one.

    It is made from one of them, with the module that holds it; names are those of its state.
    """

    def __init__(self, net: nn.Module) -> None:
        self.net = copy.deepcopy(net).train()
        self.parts: dict[str, Part] = {}  # parameters
        self.statistics: dict[str, Part] = {}  # what batch norms keep; their counts are left out
        for path, module in list(self.net.named_modules()):
            own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            if own:
                parent, _, name = path.rpartition(".")
                setattr(self.net.get_submodule(parent), name, _converted(path, module))
                self._note(path, module)

    def _note(self, path: str, module: nn.Module) -> None:
        merged, kernel = not isinstance(module, nn.Linear), isinstance(module, nn.Conv2d)
        for name, value in module.named_parameters(recurse=False):
            self.parts[f"{path}.{name}"] = Part(value.shape, merged, kernel and name == "weight")
        for name, kept in module.named_buffers(recurse=False):
            if kept.dim():
                self.statistics[f"{path}.{name}"] = Part(kept.shape, merged=True, kernel=False)

    def __call__(self, x: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the features (batch, networks · h) of images (batch, networks · channels, …).

        The tensors are every part and statistic of all networks; statistics move.
        """
        for name, value in tensors.items():
            path, _, own = name.rpartition(".")
            setattr(self.net.get_submodule(path), own, value)
        z: Tensor = self.net(x)
        return z


class NotGroupableError(Exception):
    """A backbone has no grouped form."""


def _converted(path: str, one: nn.Module) -> nn.Module:
    if type(one) is nn.Conv2d and one.padding_mode == "zeros":
        return _Conv(one)
    if type(one) is nn.BatchNorm2d and one.running_mean is not None and one.momentum is not None:
        return _Norm(one)
    if type(one) is nn.Linear:
        return _Linear()
    raise NotGroupableError(f"it has a part without a grouped form, {path}: {one}")


def group_nets(nets: Sequence[nn.Module], images: Tensor) -> GroupedNet:
    """Return the grouped form of backbones, each in a module of its own, as GroupedNet takes it.

    Images (n, channels, height, width) are there for their shape and type. Where it would not train
    them as they would be trained alone, NotGroupableError says so.
    """
    shapes = [{name: value.shape for name, value in net.state_dict().items()} for net in nets]
    if any(other != shapes[0] for other in shapes):
        raise NotGroupableError("networks differ in shape")
    names = [name for name, _ in nets[0].named_parameters(remove_duplicate=False)]
    if len(names) != len(list(nets[0].parameters())):
        raise NotGroupableError("parts of it share their weights")
    grouped = GroupedNet(nets[0])
    if not _same(grouped, [copy.deepcopy(net).train() for net in (nets[0], nets[-1])], images):
        raise NotGroupableError("it does not treat each channel by itself, or draws at random")
    return grouped


@torch.no_grad()
def _same(grouped: GroupedNet, nets: Sequence[nn.Module], images: Tensor) -> bool:
    """Return whether two networks give the same grouped as alone, each on noise of its own."""
    noise = torch.Generator().manual_seed(0)
    shape = (len(nets), TRIED, *images.shape[1:])
    x = torch.randn(shape, generator=noise, dtype=images.dtype).to(images.device)
    devices = [images.device] if images.is_cuda else []
    states = [net.state_dict() for net in nets]
    tensors = {
        name: torch.stack([state[name] for state in states]).reshape(part.shape_of(len(nets)))
        for name, part in (grouped.parts | grouped.statistics).items()
    }
    with torch.random.fork_rng(devices=devices):
        try:
            together = grouped(x.transpose(0, 1).flatten(1, 2), tensors)
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError):
            return False  # such as a view that counts channels
        alone = torch.stack([net(one) for net, one in zip(nets, x, strict=True)], dim=1)
    if together.shape != alone.flatten(1).shape:
        return False
    gap = (together - alone.flatten(1)).abs().max()
    return bool(gap <= 1e-2 * alone.abs().max())
