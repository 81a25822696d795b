"""Tasks on a Ray cluster: connect, check that every node can do them, and return their answers."""

import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lastlayer.core.extras import extra
from lastlayer.core.files import say
from lastlayer.core.version import __version__
from lastlayer.errors import LastLayerError, MissingPackageError, OptionError, ReadError

RETRIES = 20  # of a task whose node or process is lost
KNOCK_SECONDS = 10.0  # until the head node must have answered
PROBE_SECONDS = 120.0  # until a node must have answered
INSTALL = "pip install lastlayer, of the same version, on every node"


class Cluster:
    """A connection to a Ray cluster.

    Its address is that of the head node, ``auto`` for the one of this machine or of the
    environment, or ``local`` to start one here for as long as it is needed.
    """

    def __init__(self, address: str) -> None:
        # Only where nobody has decided: nothing is sent to anybody, and GPUs stay as they are.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        with extra("ray", "work on a cluster"):
            import ray  # noqa: PLC0415  (an extra)
        self.ray = ray
        self._own = not self.ray.is_initialized()
        if not self._own:
            return
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == "local":
            quiet |= {"include_dashboard": False}
        try:
            _knock(address)
            self.ray.init(address=address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
            raise OptionError(
                f"ray must be the address of a Ray cluster, auto or local, got '{address}', which "
                f"cannot be reached: {say(error)}"
            ) from error

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._own:
            self.ray.shutdown()

    @property
    def gpus(self) -> int:
        """How many GPUs its nodes have."""
        return int(sum(node["Resources"].get("GPU", 0) for node in self._nodes()))

    @property
    def cores_of_a_gpu(self) -> int:
        """How many cores a task can have for each GPU, wherever it is done; at least one."""
        here = [node["Resources"] for node in self._nodes()]
        return max(1, min(int(r["CPU"] // r["GPU"]) for r in here if r.get("GPU", 0)))

    def _nodes(self) -> list[Any]:
        """Return the nodes that can do tasks."""
        return [n for n in self.ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0)]

    def share(self, value: Any) -> Any:
        """Bring a value to the cluster once, for all tasks; it is handed to them as it is."""
        return self.ray.put(value)

    def check_nodes(self, folder: Path, files: Sequence[Path]) -> None:
        """Refuse a node that lacks lastlayer, the folder to write to, or any of the files."""
        folder.mkdir(parents=True, exist_ok=True)
        token = folder / f".seen-{uuid.uuid4().hex}"
        token.write_text(__version__)
        try:
            nodes = self._nodes()
            if not nodes:
                raise OptionError("the Ray cluster must have nodes with a CPU, but there are none")
            read = [str(file) for file in files]
            asked = {node["NodeID"]: self._ask(node["NodeID"], str(token), read) for node in nodes}
            for node in nodes:
                name = f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                answer = Path(f"{token}-{node['NodeID']}")
                self._check_answer(asked[node["NodeID"]], name, answer)
        finally:
            for left in folder.glob(f"{token.name}*"):
                left.unlink(missing_ok=True)

    def _ask(self, node: str, token: str, files: list[str]) -> Any:
        from ray.util.scheduling_strategies import (  # noqa: PLC0415  (an extra)
            NodeAffinitySchedulingStrategy,
        )

        def probe(token: str, files: list[str], node: str) -> dict[str, Any]:
            """Look around. A function within another travels whole: lastlayer may be missing."""
            import importlib  # noqa: PLC0415
            import os  # noqa: PLC0415

            found: dict[str, Any] = {"version": None, "sees": os.path.exists(token)}
            found["missing"] = [file for file in files if not os.path.exists(file)]
            try:
                found["version"] = importlib.import_module("lastlayer").__version__
            except ImportError as error:
                found["why"] = str(error)
            if found["sees"]:
                with open(f"{token}-{node}", "w") as answer:
                    answer.write(node)
            return found

        there = NodeAffinitySchedulingStrategy(node, soft=False)
        remote = self.ray.remote(probe).options(num_cpus=0, scheduling_strategy=there)
        return remote.remote(token, files, node)

    def _check_answer(self, reference: Any, name: str, answer: Path) -> None:
        try:
            found = self.ray.get(reference, timeout=PROBE_SECONDS)
        except self.ray.exceptions.RayError as error:
            raise ReadError(f"{name} of the Ray cluster does not answer: {say(error)}") from error
        if found["version"] != __version__:
            got = found["version"] or f"none ({found.get('why')})"
            raise MissingPackageError(
                f"{name} of the Ray cluster must have lastlayer {__version__}, got {got}: {INSTALL}"
            )
        if not found["sees"] or not answer.exists():
            raise OptionError(
                f"all nodes must see {answer.parent}, but {name} does not: choose a folder on a "
                "file system that they share (--parts, --out)"
            )
        if found["missing"]:
            raise OptionError(f"all nodes must see {found['missing'][0]}, but {name} does not")

    def run(
        self,
        do: Callable[..., Any],
        tasks: Sequence[Any],
        *shared: Any,
        cpus: int = 1,
        gpus: float = 0,
    ) -> Iterator[tuple[Any, Any]]:
        """Do tasks wherever there is room, and yield each with its answer as soon as it is done.

        ``do`` is called with a task, which needs so many CPUs and GPUs, and with what ``share``
        returned; it must not matter how often.
        """
        self._check_size(cpus, gpus)
        # Named here and not as options, a GPU makes Ray start a process for each task: one that
        # has used a GPU could not change to another.
        needs = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": RETRIES}
        remote = self.ray.remote(scheduling_strategy="SPREAD", **needs)(_alone)
        waiting = {remote.remote(do, task, *shared): task for task in tasks}
        try:
            while waiting:
                (done,), _ = self.ray.wait(list(waiting), num_returns=1)
                yield waiting.pop(done), self._answer(done)
        finally:
            # After an error, or when the caller wants no more answers.
            for reference in waiting:
                self.ray.cancel(reference, force=False)

    def _check_size(self, cpus: int, gpus: float) -> None:
        """Refuse tasks that no node has room for: Ray would wait for ever."""
        nodes = [node["Resources"] for node in self._nodes()]
        if not any(r["CPU"] >= cpus and r.get("GPU", 0) >= gpus for r in nodes):
            most = max((int(r["CPU"]) for r in nodes if r.get("GPU", 0) >= gpus), default=0)
            with_gpu = " that has a GPU" if gpus else ""
            raise OptionError(
                f"no node{with_gpu} of the Ray cluster has {cpus} cores for a task, the largest "
                f"has {most}: use fewer --workers"
            )

    def _answer(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", error)
            if isinstance(cause, LastLayerError):
                raise cause from error
            if "No module named" in str(error):
                raise MissingPackageError(
                    f"a node of the Ray cluster lacks a package: {say(cause)}: {INSTALL}"
                ) from error
            raise
        except self.ray.exceptions.RayError as error:
            raise LastLayerError(
                f"the Ray cluster lost a task {RETRIES} times: {say(error)}; rerun to resume"
            ) from error


def _alone(do: Callable[..., Any], *arguments: Any) -> Any:
    """Work with one thread; further cores of a task are for processes that decode."""
    from lastlayer.core.threads import one_thread  # noqa: PLC0415  (PyTorch: not to connect)

    with one_thread():
        return do(*arguments)


def _knock(address: str) -> None:
    """Find out whether anybody answers there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), KNOCK_SECONDS).close()
