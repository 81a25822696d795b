"""Shards on Ray clusters of several nodes on this machine: the same head, whatever is lost."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import piles
import pytest
import ray
import torch
from ray.cluster_utils import Cluster
from same import assert_same
from stopping import learn, starts, stopping, until

import lastlayer as ll
from lastlayer import cluster as clusters
from lastlayer.errors import DataError, FileFormatError, MissingPackageError, OptionError
from lastlayer.evaluate.shard_tasks import do
from lastlayer.extraction import Images, ImageSet
from lastlayer.extraction.parts import Parts, fill_on_ray

pytestmark = pytest.mark.filterwarnings("default")  # those of the library are its own
STORE = 80 << 20  # the least that Ray takes
CHECKS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}
TEST = piles.data(500, seed=7)[0]
LIMIT = 400  # seconds for a test


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    """End what hangs, and with it the process if need be."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        raise TimeoutError(f"took longer than {LIMIT} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Start a head node, which does no work, and leave nothing behind."""
    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={**head, "_system_config": CHECKS})
    yield made
    ray.shutdown()
    made.shutdown()


def add(cluster: Cluster, nodes: int = 1, **how: Any) -> list[Any]:
    added = [cluster.add_node(num_cpus=1, object_store_memory=STORE, **how) for _ in range(nodes)]
    cluster.wait_for_nodes()
    return added


def shards(folder: Path, pieces: int = 6) -> tuple[Path, ll.HeadClassifier]:
    """Write shards; give them, and what one process makes of them."""
    made = piles.parquet(folder / "shards", pieces)
    return made, ll.fit(made, "slda", label="species")


def gone(pid: int) -> bool:
    """Tell whether a process has ended; one that nobody has waited for yet has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def alive(node: str) -> bool:
    return any(one["Alive"] for one in ray.nodes() if one["NodeID"] == node)


def lose(cluster: Cluster, node: Any, notes: Path) -> list[dict[str, Any]]:
    """Take a node away, end the workers that it had, and return the tasks begun on it."""
    mine = [one for one in starts(notes) if one["node"] == node.node_id]
    assert mine
    cluster.remove_node(node, allow_graceful=False)
    for one in mine:
        if not gone(one["pid"]):
            os.kill(one["pid"], signal.SIGKILL)
    until(lambda: not alive(node.node_id) and all(gone(one["pid"]) for one in mine))
    return mine


class Driver(threading.Thread):
    """Fits in a thread, and keeps what came of it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(daemon=True)
        self._arguments, self.clf, self.error = arguments, None, None
        self.start()

    def run(self) -> None:
        try:
            self.clf = learn(*self._arguments)
        except BaseException as error:
            self.error = error

    def result(self) -> ll.HeadClassifier:
        self.join(120)
        if self.error is not None:
            raise self.error
        assert self.clf is not None
        return self.clf


def test_one_two_and_four_nodes(cluster: Cluster, tmp_path: Path) -> None:
    folder, whole = shards(tmp_path, pieces=9)
    mapped = ll.fit(folder, "random_ridge", label="species", options={"width": 40})
    for more in (1, 1, 2):
        add(cluster, more)
        told: list[int] = []
        clf = ll.fit(
            folder, "slda", label="species", ray=cluster.address, parts=tmp_path / "parts",
            progress=lambda done, total, told=told: told.append(done),
        )  # fmt: skip
        assert_same(clf, whole, TEST)
        assert told[-1] == piles.N
        (left,) = (tmp_path / "parts").iterdir()  # the sum
        left.unlink()
        clf = learn(cluster.address, folder, tmp_path / "parts", do)  # a part for each shard
        assert_same(clf, whole, TEST)
        (left,) = (tmp_path / "parts").iterdir()
        left.unlink()
        ray.shutdown()
    clf = ll.fit(
        folder, "random_ridge", label="species", options={"width": 40}, ray=cluster.address,
        parts=tmp_path / "parts",
    )  # fmt: skip
    assert_same(clf, mapped, TEST)


def test_a_node_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    """Its tasks have begun and not ended: they begin again elsewhere."""
    folder, whole = shards(tmp_path)
    nodes = add(cluster, 3)
    ray.init(address=cluster.address, log_to_driver=False)
    notes = tmp_path / "notes"
    notes.mkdir()
    driver = Driver(cluster.address, folder, tmp_path / "parts", stopping(notes))
    until(lambda: len({one["node"] for one in starts(notes)}) == 3 or driver.error)
    lost = nodes[1].node_id
    mine = lose(cluster, nodes[1], notes)
    (notes / "open-learn").touch()
    (notes / "open-merge").touch()
    assert_same(driver.result(), whole, TEST)
    for one in mine:
        again = [other["node"] for other in starts(notes) if other["name"] == one["name"]]
        assert len(again) == 2
        assert set(again) > {lost}  # the second was on another node


def test_an_orphan_writes_after_the_retry(cluster: Cluster, tmp_path: Path) -> None:
    """A node that was given up goes on: what it writes is there already, under the same name."""
    folder, whole = shards(tmp_path)
    nodes = add(cluster, 3)
    ray.init(address=cluster.address, log_to_driver=False)
    notes, parts = tmp_path / "notes", tmp_path / "parts"
    notes.mkdir()
    late = notes / "late"

    def outliving(notes: Path, lost: str) -> Any:
        inner, folder = stopping(notes), str(notes)

        def work(task: dict[str, Any]) -> dict[str, Any]:
            import pickle  # noqa: PLC0415
            import subprocess  # noqa: PLC0415
            import sys  # noqa: PLC0415

            import ray  # noqa: PLC0415

            if task["kind"] == "learn" and ray.get_runtime_context().get_node_id() == lost:
                # A process of its own, so that it lives on when its node is given up.
                script = (
                    "import os, pickle, sys, time\n"
                    "from lastlayer.evaluate.shard_tasks import do\n"
                    "task, folder = pickle.loads(bytes.fromhex(sys.argv[1])), sys.argv[2]\n"
                    "end = time.monotonic() + 120\n"
                    "while not os.path.exists(f'{folder}/late') and time.monotonic() < end:\n"
                    "    time.sleep(0.02)\n"
                    "assert 'error' not in do(task)\n"
                    "open(f'{folder}/orphan-' + task['name'], 'w').close()\n"
                )
                command = [sys.executable, "-c", script, pickle.dumps(task).hex(), folder]
                subprocess.Popen(command, start_new_session=True)
            return inner(task)

        return work

    lost = nodes[2].node_id
    driver = Driver(cluster.address, folder, parts, outliving(notes, lost))
    until(lambda: len({one["node"] for one in starts(notes)}) == 3 or driver.error)
    mine = lose(cluster, nodes[2], notes)
    (notes / "open-learn").touch()
    name = mine[0]["name"]
    written = parts / f"{name}.safetensors"
    until(lambda: written.exists() and starts(notes, "merge"))  # the retry is done, all leaves are
    before = written.stat()
    late.touch()
    until((notes / f"orphan-{name}").exists)
    assert written.stat().st_ino != before.st_ino  # it was written again
    (notes / "open-merge").touch()
    assert_same(driver.result(), whole, TEST)


def test_the_driver_is_killed_and_started_again(cluster: Cluster, tmp_path: Path) -> None:
    folder, whole = shards(tmp_path, pieces=8)
    add(cluster, 2)
    ray.init(address=cluster.address, log_to_driver=False)
    notes, parts, out = tmp_path / "notes", tmp_path / "parts", tmp_path / "head.safetensors"
    notes.mkdir()
    script = str(Path(__file__).with_name("stopping.py"))
    arguments = [cluster.address, "3", folder, parts, notes, out]
    command = [sys.executable, script, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(command, env=environment)
    until(lambda: len(list(notes.glob("done-*"))) >= 3 or child.poll() is not None)
    until(lambda: len(starts(notes)) >= 5)  # two more have begun, and wait
    child.kill()
    assert child.wait() == -signal.SIGKILL
    until(lambda: all(gone(one["pid"]) for one in starts(notes)))
    finished = {file.stem for file in parts.glob("*.safetensors")}
    first = [one["name"] for one in starts(notes)]
    assert len(finished & set(first)) >= 3
    assert not out.exists()
    for kind in ("learn", "merge"):
        (notes / f"open-{kind}").touch()
    subprocess.run(command, env=environment, check=True, timeout=120)
    assert_same(ll.HeadClassifier.load(out), whole, TEST)
    names = [one["name"] for one in starts(notes)]
    assert len(set(names)) == 8
    for name in set(names):
        again = names.count(name) - first.count(name)
        assert again == (0 if name in finished else 1)


def test_a_node_without_lastlayer(cluster: Cluster, tmp_path: Path) -> None:
    folder, _ = shards(tmp_path, pieces=2)
    empty = tmp_path / "path"
    empty.mkdir()
    (empty / "lastlayer.py").write_text("raise ImportError(\"No module named 'lastlayer'\")")
    add(cluster, 1, env_vars={"PYTHONPATH": str(empty)})
    with pytest.raises(MissingPackageError, match=r"node .* must have lastlayer .*, got none"):
        ll.fit(folder, "slda", label="species", ray=cluster.address, parts=tmp_path / "parts")
    assert not list((tmp_path / "parts").iterdir())


def test_what_nodes_do_not_see(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, whole = shards(tmp_path, pieces=3)
    add(cluster)
    ask = clusters.Cluster._ask
    how: dict[str, Any] = {"label": "species", "ray": cluster.address, "parts": tmp_path / "parts"}
    with monkeypatch.context() as patch:
        elsewhere = str(tmp_path / "elsewhere" / "token")
        patch.setattr(
            clusters.Cluster,
            "_ask",
            lambda self, node, token, files: ask(self, node, elsewhere, files),
        )
        with pytest.raises(OptionError, match=r"all nodes must see .*: choose a folder"):
            ll.fit(folder, "slda", **how)
    with monkeypatch.context() as patch:
        patch.setattr(
            clusters.Cluster,
            "_ask",
            lambda self, node, token, files: ask(self, node, token, ["/no"]),
        )
        with pytest.raises(OptionError, match="all nodes must see /no, but node"):
            ll.fit(folder, "slda", **how)
    (folder / "part-1.parquet").write_bytes(b"damaged")
    with pytest.raises(FileFormatError, match=r"part-1\.parquet"):
        ll.fit(folder, "slda", **how)
    clf = ll.fit(folder, "slda", **how, broken="skip")
    assert "left out 1: part-1.parquet" in clf.origin_[0]
    (folder / "part-1.parquet").unlink()
    assert_same(clf, ll.fit(folder, "slda", label="species"), TEST)
    assert whole.n_features_in_ == clf.n_features_in_


def test_an_extraction(cluster: Cluster, tmp_path: Path) -> None:
    """Its parts are made by the nodes; what is there from before is not made again."""
    add(cluster, 2)
    pixels = torch.arange(6000 * 3 * 4 * 4).reshape(6000, 3, 4, 4).remainder(251).byte()
    labels = {"class": torch.arange(6000) % 3}
    some = Images(pixels, labels), Images(pixels[:9], {"class": labels["class"][:9]})
    images = ImageSet("toy", *some, names={"class": ("a", "b", "c")})
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 5))
    told: list[int] = []

    def transform(x: torch.Tensor) -> torch.Tensor:
        return x / 255

    expected = ll.extract(images, network, transform, tmp_path / "here.safetensors")
    made = ll.extract(
        images, network, transform, tmp_path / "ray.safetensors", ray=cluster.address,
        progress=lambda done, total: told.append(done),
    )  # fmt: skip
    assert told[-1] == 6009
    assert made.fingerprint == expected.fingerprint
    assert not (tmp_path / "ray.safetensors.parts").exists()
    broken = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(47, 5))
    with pytest.raises(Exception, match="shapes cannot be multiplied"):
        ll.extract(images, broken, transform, tmp_path / "no.safetensors", ray=cluster.address)
    network[1].weight.data[0] = torch.nan
    with pytest.raises(DataError, match="features must be finite, but image"):
        ll.extract(images, network, transform, tmp_path / "no.safetensors", ray=cluster.address)


def test_an_extraction_where_some_nodes_have_a_gpu(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray is told of GPUs, so tasks go where they are, each with the cores that one has."""
    add(cluster)
    with_gpus = cluster.add_node(num_cpus=4, num_gpus=2, object_store_memory=STORE)
    cluster.wait_for_nodes()

    class WhereItIs(torch.nn.Module):
        """Gives a number of its node as the features of every image."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            node = ray.get_runtime_context().get_node_id()
            return torch.full((len(x), 1), float(int(node[:4], 16) % 2048))  # exact in float16

    found = clusters.Cluster(cluster.address)
    assert (found.gpus, found.cores_of_a_gpu) == (2, 2)
    asked: list[dict[str, Any]] = []
    run = clusters.Cluster.run

    def recorded(self: clusters.Cluster, do: Any, tasks: Any, *shared: Any, **needs: Any) -> Any:
        asked.append({"tasks": len(tasks), **needs})
        return run(self, do, tasks, *shared, **needs)

    monkeypatch.setattr(clusters.Cluster, "run", recorded)
    x = torch.arange(6000 * 3 * 4 * 4).reshape(6000, 3, 4, 4).remainder(251).byte()
    some = Images(x, {"class": torch.arange(6000) % 3})
    images = ImageSet("toy", some, some.take(torch.arange(9)), names={"class": ("a", "b", "c")})
    how: dict[str, Any] = {"ray": cluster.address}
    node = WhereItIs()
    made = ll.extract(images, node, lambda pixels: pixels / 255, tmp_path / "a", **how)
    assert set(made.train.z[:, 0].tolist()) == {int(with_gpus.node_id[:4], 16) % 2048}
    (needs,) = asked
    assert needs["cpus"] == 1  # pixels in memory are not decoded
    assert needs["gpus"] == 1
    assert needs["tasks"] == 2
    with pytest.raises(OptionError, match=r"node that has a GPU .* 5 cores .* largest has 4"):
        ll.extract(images, node, lambda pixels: pixels / 255, tmp_path / "b", workers=5, **how)

    def noted(self: clusters.Cluster, do: Any, tasks: Any, *shared: Any, **needs: Any) -> Any:
        asked.append(needs)
        return iter(())

    monkeypatch.setattr(clusters.Cluster, "run", noted)
    parts, prepare = Parts(tmp_path / "c", {}, 10), lambda cores: None
    fill_on_ray(cluster.address, parts, prepare, lambda *_: None, files=[], device="auto")
    assert asked[-1] == {"cpus": 2, "gpus": 1}  # of four cores, for one of two GPUs


def test_a_cluster_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, whole = shards(tmp_path, pieces=2)
    out = tmp_path / "head.safetensors"
    command = f"fit {folder}/*.parquet --head slda --label species --out {out} --ray local"
    assert piles.run(monkeypatch, command) == 0
    assert_same(ll.HeadClassifier.load(out), whole, TEST)
    assert not ray.is_initialized()
    assert not list(tmp_path.glob("*.parts"))


def test_no_cluster_there(tmp_path: Path) -> None:
    folder, _ = shards(tmp_path, pieces=2)
    with pytest.raises(OptionError, match="ray must be the address of a Ray cluster"):
        ll.fit(folder, "slda", label="species", ray="127.0.0.1:1")
