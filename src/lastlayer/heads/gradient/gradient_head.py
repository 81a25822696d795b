"""Heads trained by gradient: a layer, a mask, and one step of descent for each batch."""

from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from lastlayer.catalogue.head_cards import HEADS, Abilities
from lastlayer.core.checks import MOST_SEED, kind_of, whole
from lastlayer.core.names import look_up
from lastlayer.core.tensors import MOST_CLASSES
from lastlayer.errors import ArgumentError, DivergedError, OptionError
from lastlayer.heads.answering import can_win, make_ready
from lastlayer.heads.export import linear_layer
from lastlayer.heads.gradient.descent import step
from lastlayer.heads.gradient.members import Members, initial_parameters
from lastlayer.heads.graph import Value, masked
from lastlayer.heads.head import Head, Preset
from lastlayer.heads.undo import GradientsAsBefore
from lastlayer.layers import LAYERS, MASKS, Layer

COSINES = 0.05  # the temperature of cosines, of which a softmax would be flat (decision 13)


class GradientHead(Head):
    """A layer that learns by SGD with momentum 0.9, clipped at 10: one ``observe`` is one step.

    "exact": classes never seen take no part, linear rows start at zero, and under a mask everything
    about a class absent from the batch stays as it is, its velocity too. "paper": all declared
    classes take part from the start, rows start at random, and momentum moves masked rows.

    Args:
        layer: a name in ``lastlayer.layers.LAYERS``.
        preset: "exact" or "paper".
        mask: "none", "single" or "group".
        lr: the learning rate; None: 0.01 for the linear layers, 0.1 for the others.
        seed: of the first rows.
        start: "paper" only, of linear, linear_no_bias and original_weight_norm: "uniform" rows, as
            nn.Linear's, or "normal" ones (kaiming), as the other layers'; None: "uniform".
        gain: weight_norm only: "unit", or "frozen" at the first length of each row; None: "unit".
        scale: cosine only: a factor on the logits.
        learn_scale: cosine only: train that factor.

    >>> import torch
    >>> head = GradientHead("cosine", in_features=2, mask="single")
    >>> z, y = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    >>> for _ in range(20):
    ...     head.observe(z, y)
    >>> head.predict(z).tolist()
    [0, 1]
    """

    passes = None
    weight: Tensor  # (n_classes, h)
    steps: Tensor  # () how often it has been observed

    def __init__(
        self,
        layer: str,
        in_features: int,
        n_classes: int = 0,
        preset: Preset = "exact",
        *,
        mask: str = "none",
        lr: float | None = None,
        seed: int = 0,
        start: str | None = None,
        gain: str | None = None,
        scale: float | None = None,
        learn_scale: bool = False,
    ) -> None:
        kind = look_up(layer, LAYERS, "layer")
        look_up(mask, MASKS, "mask")
        whole(seed, "a seed", least=0, most=MOST_SEED)
        n_classes = whole(n_classes, "n_classes", least=0, most=MOST_CLASSES)
        for option, value in (("lr", lr), ("scale", scale)):
            if value is not None and not isinstance(value, Real):
                raise ArgumentError(f"{option} must be a number, got {kind_of(value)}")
        card = HEADS[layer]
        options: dict[str, Any] = {"mask": mask, "lr": card.rate(lr), "seed": seed}
        if preset == "paper" and card.starts:
            options["start"] = card.start(start)
        elif start is not None:
            raise OptionError(
                "start goes with preset 'paper' and a layer that can start in two ways, "
                f"got '{start}' for '{layer}' with preset '{preset}'"
            )
        self._extra: dict[str, Any] = {}
        if (found := card.gain(gain)) is not None:
            self._extra = {"gain": found}
        if scale is not None or learn_scale:
            if layer != "cosine":
                raise OptionError(f"scale is for 'cosine' only, got one for '{layer}'")
            self._extra = {"scale": scale, "learn_scale": learn_scale}
        super().__init__(in_features, 0, preset, **options, **self._extra)
        self.name = layer
        blank = kind(in_features, 0, **self._extra)
        self.form = blank.form
        for name, part in blank.parts().items():
            self.register_buffer(name, part.detach().clone())
            self.register_buffer(f"velocity_{name}", torch.zeros_like(part.detach()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        if n_classes:
            self._grow(n_classes)

    @property
    def abilities(self) -> Abilities:
        """Its largest logit is a linear layer's; what it knows depends on the order of its data."""
        return Abilities(linear=True, weighs=True)

    def parts(self) -> dict[str, Tensor]:
        """Return what is learned by name: weight (N, h), and what else the layer has."""
        return {name: getattr(self, name) for name in self.form.parameters}

    def as_layer(self) -> Layer:
        """Return the head in its present state as a layer for any network."""
        with self.lock, GradientsAsBefore():
            make_ready(self)
            layer = LAYERS[self.name](self.in_features, self.n_classes, **self._extra)
            layer.to(self.weight).load_state_dict(self.parts())
            return layer

    def _as_linear(self, dtype: torch.dtype | None) -> nn.Linear:
        """Return an ordinary layer that predicts the same class; ``as_layer`` has its logits too.

        A normalised layer's rows are scaled once and for all. The length of a sample, by which
        cosines are divided, does not change which of its logits is the largest.
        """
        parts = self.parts()
        rows = self.form.rows(parts)
        bias = parts["bias"] if self.form.bias else rows.new_zeros(self.n_classes)
        return linear_layer(rows, bias.masked_fill(~can_win(self), -torch.inf), dtype)

    def _check_batch(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, int]:
        z, y, most = super()._check_batch(z, y)
        return self._narrowed(z), y, most

    def _check_features(self, z: Tensor) -> Tensor:
        return self._narrowed(super()._check_features(z))

    def _narrowed(self, z: Tensor) -> Tensor:
        """Narrow features to the type of the rows; what is finite must still be so there."""
        if z.dtype == self.weight.dtype:
            return z
        return super()._check_features(z.to(self.weight.dtype))

    def _learn(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        parameters = {name: part.clone()[None, None] for name, part in self.parts().items()}
        velocity = {
            name: getattr(self, f"velocity_{name}").clone()[None, None] for name in parameters
        }
        exact = self.preset == "exact"
        members = Members(
            forms=[self.form],
            masks=[self.options["mask"]],
            parameters=parameters,
            velocity=velocity,
            lr=self.weight.new_full((1, 1), self.options["lr"]),
            steps=self.steps.clone(),
            diverged=torch.full((1, 1), -1, device=self.steps.device),
            seen=self.seen.to(self.weight.dtype)[None].clone() if exact else None,
        )
        share = (weight[0] / weight[0].sum()).to(z)[None] if weight else None
        step(members, z[None], y[None], share)
        members.mark_diverged()
        if int(members.diverged) >= 0:
            raise DivergedError(
                f"training diverged at step {int(self.steps) + 1} with learning rate "
                f"{self.options['lr']}: use a smaller one; the head is as it was before this batch"
            )
        # Not by setattr: nn.Module's costs more than the arithmetic of a small step.
        for name in parameters:
            self._buffers[name] = parameters[name][0, 0]
            self._buffers[f"velocity_{name}"] = velocity[name][0, 0]
        self._buffers["steps"] = members.steps

    def _logits(self, z: Tensor) -> Tensor:
        return self.form.logits(z, self.parts())

    def _novelty(self, z: Tensor, logits: Tensor) -> Tensor:
        return -logits.amax(dim=-1)  # told more than the energy of such logits (decision 13)

    def _own_temperature(self) -> float:
        cosines = self.form.unit_input and "scale" not in self._extra
        return COSINES if cosines else 1.0

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        form, p = self.form, self.parts()
        weight = form.rows(p)
        if form.unit_input:
            tiny = torch.finfo(z.graph.dtype).tiny
            z = z / z.unary("Abs").reduce("Max", keep=True).at_least(tiny)  # so squares stay finite
            z = z / z.square().reduce("Sum", keep=True).unary("Sqrt").at_least(tiny)
        logits = z @ weight.mT + p["bias"] if form.bias else z @ weight.mT
        logits = masked(logits, can_win(self))
        return logits, -logits.reduce("Max")

    def _grow(self, n_classes: int) -> None:
        known = self.n_classes
        super()._grow(n_classes)
        first = initial_parameters(
            self.name,
            n_classes,
            self.in_features,
            self.preset,
            self.options["seed"],
            self.options.get("start"),
            self.options.get("gain"),
        )
        for name, rows in first.items():
            old, more = getattr(self, name), rows[known:].to(self.weight)
            setattr(self, name, torch.cat([old, more]))
            velocity = getattr(self, f"velocity_{name}")
            setattr(self, f"velocity_{name}", torch.cat([velocity, torch.zeros_like(more)]))
