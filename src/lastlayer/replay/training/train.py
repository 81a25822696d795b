"""End to end with replay: whole networks trained task after task, with checkpoints."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lastlayer.core.names import look_up
from lastlayer.core.tensor_files import fingerprint, read_tensors, write_tensors
from lastlayer.errors import OptionError
from lastlayer.replay.training.at_once import Grouped, SideBySide, trainer_for
from lastlayer.replay.training.image_pool import ImagePool
from lastlayer.replay.training.learner import OPTIMIZERS, Learner, MakeBackbone, Network
from lastlayer.replay.training.replay_stream import ReplayStream, check_tasks
from lastlayer.replay.training.training_options import PRECISIONS, Precision, TrainingOptions

KIND = "checkpoint"
Setting = Mapping[str, Any]  # what decides the numbers; as JSON gives it back


@dataclass(frozen=True)
class ReplayRules:
    """How all networks are trained: as in the paper, which does not give the number of epochs."""

    epochs: int = 5  # of a task
    batch_size: int = 8
    per_class: int = 2000  # kept of a task, for each of its classes
    optimizer: str = "adam"
    lr: float = 1e-3

    def __post_init__(self) -> None:
        """Check the numbers."""
        look_up(self.optimizer, OPTIMIZERS, "optimizer")
        if self.epochs < 1 or self.batch_size < 2 or self.per_class < 1:
            raise OptionError(
                "epochs and per_class must be at least 1, and batch_size at least 2, "
                f"got {self.epochs}, {self.per_class} and {self.batch_size}"
            )
        if not 0 < self.lr < math.inf:
            raise OptionError(f"lr must be above 0 and finite, got {self.lr}")


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one network: one file for each task, rewritten as training proceeds."""

    folder: Path
    setting: Setting
    epochs: int  # of a task
    every: int = 1  # epochs between two of them

    def due(self, epochs: int) -> bool:
        """Return whether to write one after this many epochs of a task; always after the last."""
        return epochs == self.epochs or epochs % self.every == 0

    def save(self, task: int, learner: Learner, right: list[Tensor]) -> None:
        """Write a learner, and its right answers after each epoch of the task so far.

        The optimizer is not kept once its task is done.
        """
        tensors = {f"net.{name}": value for name, value in learner.net.state_dict().items()}
        if len(right) < self.epochs:
            tensors |= _optimizer_tensors(learner)
        tensors["right"] = torch.stack(right)
        write_tensors(self._path(task), KIND, tensors, {"setting": self.setting})

    def load(self, task: int, learner: Learner) -> list[Tensor]:
        """Restore a learner from its checkpoint; return its right answers after each epoch.

        Where there is no checkpoint, the learner stays as it is and the list is empty.
        """
        path = self._path(task)
        if not path.exists():
            return []
        tensors, metadata = read_tensors(path, KIND)
        self._check(path, metadata["setting"])
        right = tensors.pop("right").clone()
        net = {name[4:]: value for name, value in tensors.items() if name.startswith("net.")}
        learner.net.load_state_dict(net)
        _load_optimizer(learner, tensors)
        return list(right)

    def _path(self, task: int) -> Path:
        return self.folder / f"task-{task}.safetensors"

    def _check(self, path: Path, found: Setting) -> None:
        names = dict.fromkeys([*self.setting, *found])
        keys = [key for key in names if self.setting.get(key) != found.get(key)]
        if keys:
            expected, got = ({key: of.get(key) for key in keys} for of in (self.setting, found))
            raise OptionError(
                f"the checkpoint {path} belongs to another setting: expected {expected}, got "
                f"{got}; choose another folder, or remove this one"
            )


def _optimizer_tensors(learner: Learner) -> dict[str, Tensor]:
    states = learner.optimizer.state_dict()["state"]
    return {
        f"optimizer.{number}.{name}": value
        for number, state in states.items()
        for name, value in state.items()
    }


def _load_optimizer(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, number, name = key.split(".")
            state.setdefault(int(number), {})[name] = value.clone()
    groups = learner.optimizer.state_dict()["param_groups"]
    learner.optimizer.load_state_dict({"state": state, "param_groups": groups})


@dataclass(frozen=True)
class TaskEnd:
    """One network at the end of one task; all tensors are on the CPU."""

    network: Network
    task: int
    layer: Mapping[str, Tensor]  # weight (N, h); bias, gamma (N,) where the layer has them
    features: Tensor  # (m, h) of the test images, as the layer sees them now
    right: Tensor  # (epochs, N) right answers of each class after each epoch; −1: diverged
    images: int  # that one epoch of the task trained on


@dataclass
class Trainee:
    """One network, between two epochs."""

    network: Network
    stream: ReplayStream
    learner: Learner
    checkpoints: Checkpoints | None
    right: list[Tensor] = field(default_factory=list)  # one for each epoch of the task that is done
    catching_up: bool = True  # every task so far was found done
    kept: int = 0  # epochs of the task that a checkpoint holds

    def begin(self, task: int) -> None:
        """Start a task with a new optimizer, or resume it from a checkpoint."""
        self.learner.restart()
        self.right = []
        if self.checkpoints and self.catching_up:
            self.right = self.checkpoints.load(task, self.learner)
            self.catching_up = len(self.right) == self.checkpoints.epochs
        self.kept = len(self.right)

    def end_epoch(self, task: int) -> None:
        """Score the network after the epoch, and write a checkpoint when one is due."""
        self.right.append(self.learner.right())
        if self.checkpoints and self.checkpoints.due(len(self.right)):
            self.keep(task)

    def keep(self, task: int) -> None:
        """Write a checkpoint, unless there is one already."""
        if self.checkpoints and self.kept < len(self.right):
            self.checkpoints.save(task, self.learner, self.right)
            self.kept = len(self.right)

    def end(self, task: int) -> TaskEnd:
        """Return the state of the network after a task."""
        return TaskEnd(
            self.network,
            task,
            {
                name: part.detach().cpu().clone()
                for name, part in self.learner.layer.parts().items()
            },
            self.learner.features().cpu(),
            torch.stack(self.right),
            len(self.stream.rows[task]),
        )


def train_replay(
    pool: ImagePool,
    tasks: Sequence[Tensor],
    networks: Sequence[Network],
    make_backbone: MakeBackbone,
    rules: ReplayRules = ReplayRules(),  # noqa: B008  (frozen)
    options: TrainingOptions = TrainingOptions(),  # noqa: B008
    *,
    orders: Sequence[Sequence[int]] | None = None,
    folder: str | os.PathLike[str] | None = None,
    on_epoch: Callable[[int], None] | None = None,
    on_found: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[TaskEnd]:
    """Train networks on a stream of image tasks with replay, side by side on the pool's device.

    Yields the state of each network at the end of the first task, then of the next. A network is
    trained as it would be alone, unless its backbone draws random numbers (dropout).

    Args:
        pool: the images, on the device to train on.
        tasks: the training rows of each task, in the order in which they arrive.
        networks: what to train; they may differ in layer, mask, balance and seed.
        make_backbone: returns a new network from images to features (n, h) at each call, with
            weights drawn from PyTorch's generator.
        rules: what all networks have in common.
        options: what the paper leaves open: clipping, first weights, precision. On a GPU
            convolutions are computed in full float32 unless the precision says otherwise.
        orders: for each network the tasks in the order in which it meets them; None: as given.
        folder: where checkpoints are written, after each epoch unless the options say otherwise. A
            killed run resumes from there, and yields the ends of all tasks, finished ones included.
        on_epoch: called with the number of images after each epoch of a network.
        on_found: called with that number for each epoch restored from a checkpoint.
        stop: asked after each epoch of all networks whether to stop here, with checkpoints
            written; the same call resumes from there.
    """
    if isinstance(make_backbone, nn.Module):
        raise OptionError(f"make_backbone must be a function, got a network{_COPY}")
    rows = [torch.as_tensor(task).cpu() for task in tasks]
    y = pool.y.cpu()
    if PRECISIONS[options.precision].cast and pool.shift.dtype != torch.float32:
        raise OptionError(
            f"precision '{options.precision}' needs float32 images, got {pool.shift.dtype}"
        )
    common = {} if folder is None else asdict(rules) | _fingerprints(pool, rows)
    trainees = []
    for network, order in zip(networks, _orders(orders, networks, len(rows)), strict=True):
        own = [rows[task] for task in order]
        check_tasks(own, y, rules.per_class)
        stream = ReplayStream(own, y, rules.per_class, network.balance, network.seed)
        learner = Learner(network, pool, make_backbone, rules.optimizer, rules.lr, options)
        checkpoints = None
        if folder is not None:
            first = {"start": fingerprint(learner.net.state_dict())}
            setting = asdict(network) | {"order": list(order)} | common | first
            setting |= options.decisive()
            own_folder = Path(folder) / str(network)
            checkpoints = Checkpoints(own_folder, setting, rules.epochs, options.save_every)
        trainees.append(Trainee(network, stream, learner, checkpoints))
    _check_backbones([trainee.learner for trainee in trainees])
    learners = [trainee.learner for trainee in trainees]
    longest = max((len(task) for each in trainees for task in each.stream.rows), default=0)
    trainer = trainer_for(learners, rules.batch_size, longest, options)
    on_epoch, on_found = (tell or (lambda images: None) for tell in (on_epoch, on_found))
    stop, precision = stop or (lambda: False), PRECISIONS[options.precision]
    return _ends(trainees, trainer, len(rows), rules.epochs, precision, on_epoch, on_found, stop)


def _check_backbones(learners: Sequence[Learner]) -> None:
    """Refuse networks that share weights, because each would train the other's."""
    parts = [id(part) for learner in learners for part in learner.net.parameters()]
    if len(set(parts)) < len(parts):
        raise OptionError(
            f"make_backbone must return a new network each time, got one twice{_COPY}"
        )


_COPY = "; for one that is trained give: lambda: copy.deepcopy(network)"


def _orders(
    given: Sequence[Sequence[int]] | None, networks: Sequence[Network], n_tasks: int
) -> Sequence[Sequence[int]]:
    """Return each network's order of tasks, each task once."""
    orders = [range(n_tasks)] * len(networks) if given is None else given
    if len(orders) != len(networks) or any(sorted(o) != list(range(n_tasks)) for o in orders):
        raise OptionError(
            f"orders must have an order of {n_tasks} tasks for each of {len(networks)} networks, "
            f"got {[tuple(order) for order in orders]}"
        )
    return orders


def _ends(
    trainees: Sequence[Trainee],
    trainer: SideBySide | Grouped,
    tasks: int,
    epochs: int,
    precision: Precision,
    on_epoch: Callable[[int], None],
    on_found: Callable[[int], None],
    stop: Callable[[], bool],
) -> Iterator[TaskEnd]:
    """Train networks through all tasks, and yield every one's end of each task."""
    for task in range(tasks):
        for trainee in trainees:
            trainee.begin(task)
            for _ in trainee.right:
                on_found(len(trainee.stream.rows[task]))
        for epoch in range(epochs):
            behind = [trainee for trainee in trainees if len(trainee.right) == epoch]
            orders = [trainee.stream.order(task, epoch) for trainee in behind]
            with precision.convolutions():
                trainer.take_epoch([trainee.learner for trainee in behind], orders)
                for trainee in behind:
                    trainee.end_epoch(task)
            for order in orders:
                on_epoch(len(order))
            if behind and stop():
                for trainee in trainees:
                    trainee.keep(task)
                return
        for trainee in trainees:
            with precision.convolutions():
                end = trainee.end(task)
            yield end


def _fingerprints(pool: ImagePool, tasks: Sequence[Tensor]) -> dict[str, str]:
    """Name the data: the images with what normalises them, and the rows of each task."""
    images = {"x": pool.x, "y": pool.y, "test_x": pool.test_x, "test_y": pool.test_y}
    images |= {"scale": pool.scale, "shift": pool.shift}
    rows = {str(task): rows for task, rows in enumerate(tasks)}
    return {"images": fingerprint(images), "tasks": fingerprint(rows)}
