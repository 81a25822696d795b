"""Heads from shards: rows per second beside reading and the bare product, memory, Ray, large files.

python -m benchmarks.scale rates  [--rows 160000] [--heads …] [--cores 1,2] [--folder DIR]
python -m benchmarks.scale cores  [--rows 1280000] [--heads …] [--cores 1,2] [--folder DIR]
python -m benchmarks.scale curves [--folder DIR]
python -m benchmarks.scale memory [--gigabytes 4] [--plain] [--folder DIR]
python -m benchmarks.scale large  [--classes 1000] [--steps fit,predict,advise] [--folder DIR]
python -m benchmarks.scale unknown [--classes 10000]
python -m benchmarks.scale ray    [--rows 160000] [--folder DIR]

Each prints its lines; results/benchmarks/scale.txt holds those of one run. Times are processor
times, summed over threads, so that other work on the machine matters little; seconds on the clock
are given as well.
Of rates and cores, a process may use so many cores and no others, as under ``taskset``.
"""

# ruff: noqa: E402  (how many threads there are is said before anything makes some)

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing import current_process, get_context
from pathlib import Path

AS_GIVEN = dict(os.environ)  # what a program has that is started as anybody would start it
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")  # one for each core: that is what is compared
if current_process().name not in ("MainProcess", "ours"):  # reads alone, on one core
    os.environ["POLARS_MAX_THREADS"] = "1"

import numpy as np
import polars as pl
import torch
from scipy.linalg.blas import dsyrk

import lastlayer as ll
from lastlayer.cluster import Cluster
from lastlayer.data.tables.which_columns import Selection
from lastlayer.estimator.fit_shards import fit_shards
from lastlayer.evaluate import shard_tasks
from lastlayer.evaluate.shard_tasks import Run, cores, run_in_threads

H, CLASSES, SHARD, BLOCK, WIDTH = 768, 1000, 20_000, 8192, 2000
HEADS = ("mean", "slda", "ridge", "random_ridge")
WHAT = ("rates", "cores", "curves", "memory", "large", "unknown", "ray")


# The shards


def block(n: int, seed: int, h: int = H, classes: int = CLASSES) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(classes, size=n)
    return random.standard_normal((n, h), dtype=np.float32) + (y[:, None] % 7), y


def write(folder: Path, kind: str, rows: int, h: int = H, classes: int = CLASSES) -> list[Path]:
    """Write shards, as Parquet (lists of float32, as polars writes) or as our files (float16)."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number in range(-(-rows // SHARD)):
        z, y = block(min(SHARD, rows - number * SHARD), number, h, classes)
        if kind == "parquet":
            files.append(folder / f"part-{number:04}.parquet")
            vectors = pl.Series("z", z, dtype=pl.Array(pl.Float32, h)).arr.to_list()
            pl.DataFrame({"z": vectors, "y": y}).write_parquet(files[-1], row_group_size=BLOCK)
        else:
            files.append(folder / f"part-{number:04}.safetensors")
            half = z.astype(np.float16)
            ll.Features.from_arrays(half, y, test=(half[:1], y[:1])).save(files[-1])
    return files


def copies(folder: Path, kind: str, n: int) -> list[Path]:
    """Write one shard, and copy it: what is in shards does not matter to time and memory."""
    (first,) = write(folder, kind, SHARD)
    others = [first.with_stem(f"part-{number:04}") for number in range(1, n)]
    for other in others:
        shutil.copy(first, other)
    return [first, *others]


# What is done without us: reading alone, and the product alone


def read(files: list[Path], verified: bool = True) -> tuple[float, float]:
    """Read shards with the bare library; our files are verified, too."""
    begin = time.perf_counter(), time.process_time()
    for file in files:
        if file.suffix == ".parquet":
            lazy = pl.scan_parquet(file).select("z", "y")
            for piece in lazy.collect_batches(chunk_size=BLOCK, maintain_order=True):
                piece["z"].list.to_array(H).to_numpy()
                piece["y"].to_numpy()
        else:
            room, digest = bytearray(24 << 20), hashlib.sha256()
            with file.open("rb") as held:
                while n := held.readinto(room):
                    if verified:
                        digest.update(memoryview(room)[:n])
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


def multiply(head: str, rows: int, kind: str = "parquet") -> tuple[float, float]:
    """Do the products that a head is made of, in float64, on rows in memory as they are read.

    Of mean these are the sums of each class, and of the squared distances from a point of it.
    """
    z, y = block(BLOCK, 0)
    rows_read = torch.from_numpy(z if kind == "parquet" else z.astype(np.float16))
    own, wide = torch.from_numpy(y), torch.empty(BLOCK, H, dtype=torch.float64)
    sums = torch.zeros(CLASSES, H, dtype=torch.float64)
    spread, centre = torch.zeros(CLASSES, dtype=torch.float64), torch.randn_like(sums)
    away = torch.empty_like(wide)
    width = WIDTH if head == "random_ridge" else H
    gram = np.zeros((width, width), order="F")
    projection = torch.randn(H, WIDTH, dtype=torch.float64)
    begin = time.perf_counter(), time.process_time()
    for start in range(0, rows, BLOCK):
        n = min(BLOCK, rows - start)
        wide, away, own = wide[:n], away[:n], own[:n]
        wide.copy_(rows_read[:n])
        if head == "mean":
            sums.index_add_(0, own, wide)
            torch.index_select(centre, 0, own, out=away)
            spread.index_add_(0, own, torch.sub(wide, away, out=away).square_().sum(dim=1))
            continue
        mapped = (wide @ projection).relu_() if head == "random_ridge" else wide
        dsyrk(1.0, mapped.numpy().T, beta=1.0, c=gram, overwrite_c=1)
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


# Ours


def learn(files: list[Path], head: str, run: Run) -> tuple[float, float]:
    clf = ll.HeadClassifier(head, random_state=0)
    begin = time.perf_counter(), time.process_time()
    fit_shards(files, clf, Selection(), run=run)
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


def rates(
    folder: Path, rows: int, rounds: int, heads: list[str], kinds: list[str], cores_: list[int]
) -> None:
    print(f"{rows:,} × {H}, {CLASSES} classes, shards of {SHARD:,}; medians of {rounds} rounds")
    print(
        "head          shards       cores  rows/s  read+product  share  (on the clock)", flush=True
    )
    for kind in kinds:
        files = write(folder / kind, kind, rows)
        for n_cores in cores_:
            on_cores(n_cores, rates_on, kind, files, n_cores, rounds, heads)


def on_cores(n: int, do: Callable[..., None], *arguments: object) -> None:
    """Call a function in a process that may use n cores."""
    usable = sorted(os.sched_getaffinity(0))
    assert n <= len(usable)
    os.sched_setaffinity(0, usable[:n])  # a process that starts now has no others
    measured = get_context("spawn").Process(target=do, args=arguments, name="ours")
    measured.start()
    os.sched_setaffinity(0, usable)
    measured.join()
    assert measured.exitcode == 0


def rates_on(kind: str, files: list[Path], n_cores: int, rounds: int, heads: list[str]) -> None:
    runner = partial(run_in_threads, threads=n_cores)
    with get_context("spawn").Pool(n_cores) as pool:
        pool.starmap(multiply, [("mean", BLOCK)] * n_cores)
        learn(files[:n_cores], "mean", runner)  # everything is imported now
        for head in heads:
            some = files[: max(len(files) // 4, n_cores)] if head == "random_ridge" else files
            row(head, kind, some, n_cores, rounds, pool, runner)
    print(flush=True)


def row(head, kind, files, cores, rounds, pool, runner) -> None:
    """Measure one head: reading, the product and ours, in turn, several times."""
    n = len(files) * SHARD
    shares = [files[k::cores] for k in range(cores)]
    found = []
    for _ in range(rounds):
        reading = pool.map(read, shares, 1)
        asked = [(head, len(share) * SHARD, kind) for share in shares]
        product = pool.starmap(multiply, asked, 1)
        ours = learn(files, head, runner)
        bare = [sum(max(one[k] for one in part) if k == 0 else sum(one[k] for one in part)
                    for part in (reading, product)) for k in (0, 1)]  # fmt: skip
        found.append((bare[1], ours[1], bare[0], ours[0]))
    bare, ours, bare_clock, ours_clock = np.median(found, axis=0)
    print(
        f"{head:13} {kind:12} {cores:5} {n / ours * cores:7,.0f} {n / bare * cores:13,.0f} "
        f"{bare / ours:6.0%}  {n / ours_clock:,.0f} of {n / bare_clock:,.0f}, "
        f"{bare_clock / ours_clock:.0%}",
        flush=True,
    )


def many_cores(
    folder: Path, rows: int, heads: list[str], kinds: list[str], cores_: list[int]
) -> None:
    """Print how fast many rows are learned, on the clock, with more and more cores."""
    print(f"{rows:,} × {H}, {CLASSES} classes, shards of {SHARD:,}")
    print("head          shards       cores  seconds  of processors     rows/s", flush=True)
    for kind in kinds:
        files = copies(folder / kind, kind, rows // SHARD)
        for head in heads:
            for n_cores in cores_:
                on_cores(n_cores, cores_on, kind, files, n_cores, head)
            print(flush=True)


def cores_on(kind: str, files: list[Path], n_cores: int, head: str) -> None:
    runner = partial(run_in_threads, threads=n_cores)
    learn(files[:n_cores], "mean", runner)  # everything is imported now
    clock, used = learn(files, head, runner)
    speed = len(files) * SHARD / clock
    print(f"{head:13} {kind:12} {n_cores:5} {clock:8.1f} {used:14.1f} {speed:10,.0f}", flush=True)


def curves(folder: Path) -> None:
    """Print how time grows with samples, features and classes (slda), and width (random_ridge)."""

    def one(
        name: str, rows: int, h: int, classes: int, head: str = "slda", **options: object
    ) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            files = write(Path(place), "safetensors", rows, h, classes)
            clf = ll.HeadClassifier(head, options=options or None, random_state=0)
            begin = time.process_time()
            fit_shards(files, clf, Selection(), run=partial(run_in_threads, threads=1))
            used = time.process_time() - begin
            clf.save(Path(place) / "head")
            size = (Path(place) / "head").stat().st_size
            speed, mega = rows / used, size / 2**20
            print(f"{name:24} {used:6.1f} s {speed:9,.0f} rows/s {mega:6.1f} MiB", flush=True)

    one("(the first one warms up)", 20_000, 256, 100)
    for rows in (20_000, 40_000, 80_000, 160_000):
        one(f"samples {rows:,}", rows, 256, 100)
    for h in (128, 256, 512, 1024):
        one(f"features {h}", 40_000, h, 100)
    for classes in (10, 100, 1000, 10_000):
        one(f"classes {classes:,}", 40_000, 256, classes)
    for width in (500, 1000, 2000):
        one(f"width {width:,} random_ridge", 20_000, 256, 100, "random_ridge", width=width)


# Memory


@contextmanager
def watched(pid: int) -> Iterator[list[int]]:
    """Note the most anonymous memory of a process and its children, of one alone, and how many.

    That is what a process has written itself (RssAnon): no pages of files or shared libraries.
    """
    peak, done = [0, 0, 0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            held = [anonymous(one) for one in family(pid)]
            if sum(held) > peak[0]:
                peak[0], peak[2] = sum(held), len(held)
            peak[1] = max(peak[1], max(held, default=0))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def family(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
    except (OSError, StopIteration):
        return 0


def with_libraries(*modules: str, first: str = "") -> int:
    """Return the anonymous memory of a process that has only imported modules."""
    code = f"{first}import sys, {', '.join(modules)}; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        return anonymous(child.pid)


def watch_command(
    command: list[str], environment: dict[str, str] | None = None, first: str = ""
) -> tuple[float, list[int], str]:
    """Run the program, and note its time, its memory and what it prints."""
    start = time.perf_counter()
    program = [sys.executable, "-c", f"{first}from lastlayer.cli import main; main()", *command]
    child = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment)
    with watched(child.pid) as peak:
        out, _ = child.communicate()
    assert child.returncode == 0
    return time.perf_counter() - start, peak, out.strip()


# What scikit-learn imports where it is there, and a plain installation of ours does not bring.
WITHOUT = "import sys; sys.modules.update(pandas=None, pyarrow=None); "


def memory(folder: Path, gigabytes: float, kinds: list[str], plain: bool) -> None:
    first = WITHOUT if plain else ""
    libraries = with_libraries("lastlayer.cli", "lastlayer.evaluate.shards", first=first)
    for kind, each in [(kind, {"parquet": 4 * H, "safetensors": 2 * H}[kind]) for kind in kinds]:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            files = copies(Path(place) / kind, kind, int(gigabytes * 1e9 / each / SHARD))
            size = sum(file.stat().st_size for file in files)
            command = ["fit", str(Path(place) / kind), "--head", "slda"]
            command += ["--out", f"{place}/head.safetensors"]
            took, peak, said = watch_command(command, AS_GIVEN, first)
            said = said.splitlines()[0]
            print(f"{kind}: {size / 1e9:.1f} GB in {len(files)} shards; {took:.0f} s; {said}")
            print(
                f"  peak anonymous memory: {_mib(peak[0])} ({peak[0] / 1e6:.0f} MB), processes "
                f"{peak[2]}, cores {cores()}; libraries alone {_mib(libraries)}; a head's "
                f"statistics {_mib(8 * (H * H + CLASSES * (H + 1)))}",
                flush=True,
            )


def _mib(n: int) -> str:
    return f"{n / 2**20:.0f} MiB"


def large(folder: Path, classes: int, steps: list[str], rows: int) -> None:
    """Fit, predict and advise with one features file of the size of ImageNet."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        subprocess.run(
            [sys.executable, "-m", "benchmarks.scale", "make", "--classes", str(classes), "--rows",
             str(rows), "--folder", place], check=True,
        )  # fmt: skip
        path, head = f"{place}/large.safetensors", f"{place}/head.safetensors"
        print(f"{rows:,} × {H}, {classes:,} classes: {Path(path).stat().st_size / 1e9:.1f} GB")
        for command in (
            ["fit", path, "--head", "slda", "--out", head],
            ["predict", head, path, "--rows", "test", "--out", f"{place}/labels.parquet"],
            ["advise", path, "--scenario", "iid"],
        ):
            if command[0] not in steps:
                continue
            took, peak, said = watch_command(command)
            said = said.partition("\n\n")[2] if command[0] == "advise" else said.splitlines()[0]
            print(
                f"  {command[0]:8} {took:6.0f} s, peak {peak[0] / 2**20:6.0f} MiB: {said}",
                flush=True,
            )


def make_large(folder: Path, classes: int, rows: int) -> None:
    z = torch.empty(rows, H, dtype=torch.float16)
    y = torch.arange(rows) % classes
    random = np.random.default_rng(0)
    centres = torch.from_numpy(random.standard_normal((classes, H), dtype=np.float32)) / 8
    for part, own in zip(z.split(SHARD), y.split(SHARD), strict=True):
        part.copy_(torch.randn(len(part), H) + centres[own])
    test = z[: 10 * SHARD // 4], y[: 10 * SHARD // 4]
    ll.Features.from_arrays(z, y, test=test).save(folder / "large.safetensors")


def unknown(classes: int) -> None:
    """Print what a random head keeps to compute novelty."""
    z, _ = block(2 * classes, 0, 64, classes)
    head = ll.make_head("random_slda", 64)
    head.observe(torch.from_numpy(z), torch.arange(2 * classes) % classes)
    head.predict(torch.from_numpy(z[:10]))
    before, begin = anonymous(os.getpid()), time.process_time()
    with watched(os.getpid()) as peak:
        head.novelty(torch.from_numpy(z[:100]))
    print(
        f"random_slda, width {WIDTH:,}, {classes:,} classes: {time.process_time() - begin:.0f} s, "
        f"peak {_mib(peak[0] - before)}, of which it keeps {_mib(anonymous(os.getpid()) - before)}"
    )


def on_ray(folder: Path, rows: int) -> None:
    """Do the same work here and on a Ray cluster of this machine."""
    files = write(folder / "shards", "parquet", rows)
    start = time.perf_counter()
    cluster = Cluster("local")
    print(f"a cluster of this machine starts in {time.perf_counter() - start:.1f} s")
    with closing(cluster), tempfile.TemporaryDirectory() as parts:
        runs, times = [partial(run_in_threads, threads=2), partial(cluster.run, shard_tasks.do)], []
        for k in range(4):  # the first is not counted: everything is imported in it
            took = []
            for one in runs:
                clf, begin = ll.HeadClassifier("slda", random_state=0), time.perf_counter()
                fit_shards(files, clf, Selection(), run=one, parts=f"{parts}/{k}{id(one)}")
                took.append(time.perf_counter() - begin)
            times += [took] if k else []
        here, there = np.median(times, axis=0)
        print(
            f"slda from {rows:,} × {H} parquet: {here:.1f} s here on 2 cores, {there:.1f} s on "
            f"Ray with as many: {there / here:.2f} × (medians of 3)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=[*WHAT, "make"])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--plain", action="store_true", help="memory without pandas and pyarrow")
    parser.add_argument("--heads", default=",".join(HEADS), help="of rates and cores")
    parser.add_argument("--kinds", default="parquet,safetensors", help="of rates, cores and memory")
    parser.add_argument("--cores", default="1,2", help="of rates and cores")
    parser.add_argument("--steps", default="fit,predict,advise", help="of large")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    asked = parser.parse_args()
    if asked.what == "make":
        make_large(asked.folder, asked.classes, asked.rows)
        return
    print(f"$ python -m benchmarks.scale {' '.join(sys.argv[1:]).split(' --folder')[0]}")
    with tempfile.TemporaryDirectory(dir=asked.folder) as place:
        folder = Path(place)
        heads, kinds = asked.heads.split(","), asked.kinds.split(",")
        cores_ = list(map(int, asked.cores.split(",")))
        do: dict[str, Callable[[], None]] = {
            "rates": lambda: rates(
                folder, asked.rows or 160_000, asked.rounds, heads, kinds, cores_
            ),
            "cores": lambda: many_cores(folder, asked.rows or 1_280_000, heads, kinds, cores_),
            "curves": lambda: curves(folder),
            "memory": lambda: memory(folder, asked.gigabytes, kinds, asked.plain),
            "large": lambda: large(
                folder, asked.classes, asked.steps.split(","), asked.rows or 1_280_000
            ),
            "unknown": lambda: unknown(asked.classes),
            "ray": lambda: on_ray(folder, asked.rows or 160_000),
        }
        do[asked.what]()


if __name__ == "__main__":
    main()
