"""Six real shifts, and what river's and MAPIE's detectors make of them; see ``benchmarks.watch``.

All detectors see the same streams: errors, or novelties beside those of the calibration. Each is
tuned on further streams without change to the same realised rate of false alarms, one in twenty.
Those of ours that say "as promised" are not tuned.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.watch import Pool, calibrated, many, with_more_errors
from mapie.exchangeability_testing import OnlineMartingaleTest, RiskMonitoring
from river.drift import ADWIN, KSWIN, PageHinkley
from river.drift.binary import DDM
from torch import Tensor
from torch.nn.functional import conv2d, pad

import lastlayer as ll
from lastlayer.extraction.backbones.resnet20 import ResNet20
from lastlayer.extraction.datasets.cifar import parse_pickle
from lastlayer.heads import Head
from lastlayer.live.watch.compared import Judged
from lastlayer.live.watch.rules import MOVED, STRANGE, WORSE
from lastlayer.live.watch.watch import Watch
from lastlayer.live.watch.wealth import Wealth

BEFORE, AFTER, TUNED = 5000, 5000, 40
Records = tuple[Any, Any]  # rows at which a statistic was higher than ever, and how high


@dataclass(frozen=True, eq=False)
class World:
    """What is drawn before a change, and what a head has learned."""

    head: Head
    pool: Pool
    calibration: int


@cache
def cifar10() -> World:
    data = ll.load_features("cifar10")
    head = ll.make_head("slda", in_features=64)
    head.observe(data.train.z, data.train.y)
    return World(head, Pool.of(head, data.test.z.double(), data.test.y), 5000)


@cache
def domains() -> tuple[World, Pool]:
    """Return coarse classes of CIFAR100: known are four of the five fine classes of each."""
    data = ll.load_features("cifar100")
    fine, coarse = data.train.labels["fine"], data.train.labels["coarse"]
    of = torch.zeros(100, dtype=torch.int64).scatter(0, fine, coarse)
    last = torch.stack([(of == c).nonzero().flatten()[-1] for c in range(20)])
    new, seen = torch.isin(fine, last), torch.isin(data.test.labels["fine"], last)
    head = ll.make_head("slda", in_features=64)
    head.observe(data.train.z[~new], coarse[~new])
    z, y = data.test.z.double(), data.test.labels["coarse"]
    return World(head, Pool.of(head, z[~seen], y[~seen]), 5000), Pool.of(head, z[seen], y[seen])


@cache
def images(root: Path, weights: Path) -> tuple[World, Pool, Pool]:
    """Return CIFAR100's first 5,000 test images: as they are, blurred, and by another backbone."""
    z = features_of_images(root, weights)
    data = ll.load_features("cifar100")
    head = ll.make_head("slda", in_features=64)
    head.observe(data.train.z, data.train.y)
    y = torch.from_numpy(z["fine"].astype(np.int64))
    plain, blur, other = (
        Pool.of(head, torch.from_numpy(z[name]).double(), y)
        for name in ("plain100", "blur100", "plain10")
    )
    return World(head, plain, 5000), blur, other


def features_of_images(root: Path, weights: Path) -> dict[str, Any]:
    file = root / "cifar-100-python" / "test"
    content = parse_pickle(file.read_bytes(), str(file), {"fine": "fine_labels"})
    x = torch.from_numpy(content["x"][:5000].reshape(-1, 3, 32, 32)).float() / 255
    made: dict[str, Any] = {"fine": content["fine"][:5000]}
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.5071, 0.4865, 0.4409),
                                                         (0.2009, 0.1984, 0.2023)))  # fmt: skip
    for name, of, shown in (("plain", 100, x), ("blur", 100, blurred(x)), ("plain", 10, x)):
        network = ResNet20(of)
        trained = torch.load(weights / f"cifar{of}_resnet20.pth", weights_only=True)
        network.load_state_dict(trained)
        network.eval()
        with torch.no_grad():
            parts = [network((part - mean) / std) for part in shown.split(500)]
        made[f"{name}{of}"] = torch.cat(parts).half().numpy()
    return made


def blurred(x: Tensor, sigma: float = 0.6) -> Tensor:
    one = torch.exp(-(torch.arange(-2, 3).float() ** 2) / (2 * sigma**2))
    kernel = one[:, None] * one
    kernel = (kernel / kernel.sum()).expand(3, 1, 5, 5)
    return conv2d(pad(x, (2, 2, 2, 2), mode="reflect"), kernel, groups=3)


def worlds(root: Path, weights: Path) -> dict[str, tuple[World, Callable[..., Judged]]]:
    """Return the world of each shift, and what draws its rows after the change."""
    ten, (twenty, domain), (hundred, blur, other) = cifar10(), domains(), images(root, weights)
    return {
        "new domain": (twenty, partial(_from, domain)),
        "one class replaced": (ten, partial(_replaced, ten.pool)),
        "a fifth of labels random": (ten, partial(_noisy, ten.pool)),
        "images blurred": (hundred, partial(_from, blur)),
        "a drifting mix of classes": (ten, partial(_mixed, ten.pool)),
        "another checkpoint": (hundred, partial(_from, other)),
    }


def _from(pool: Pool, rng: np.random.Generator) -> Judged:
    return pool.rows(rng.integers(len(pool.y), size=AFTER))


def _replaced(pool: Pool, rng: np.random.Generator) -> Judged:
    """Let the rows of one class be those of another; their labels stay."""
    one, other = rng.permutation(10)[:2]
    drawn = rng.integers(len(pool.y), size=AFTER)
    y = pool.y[drawn]
    hit = y == one
    drawn[hit] = rng.choice(np.nonzero(pool.y == other)[0], hit.sum())
    return pool.rows(drawn, y)


def _noisy(pool: Pool, rng: np.random.Generator) -> Judged:
    drawn = rng.integers(len(pool.y), size=AFTER)
    y = np.where(rng.random(AFTER) < 0.2, rng.integers(10, size=AFTER), pool.y[drawn])
    return pool.rows(drawn, y)


def _mixed(pool: Pool, rng: np.random.Generator) -> Judged:
    """Let birds, cats and deer become five times as frequent, little by little."""
    hard = np.isin(pool.y, (2, 3, 4))
    often = 1 + 4 * np.arange(AFTER) / AFTER
    share = 0.3 * often / (0.3 * often + 0.7)
    pick = rng.random(AFTER) < share
    drawn = np.where(pick, rng.choice(np.nonzero(hard)[0], AFTER),
                     rng.choice(np.nonzero(~hard)[0], AFTER))  # fmt: skip
    return pool.rows(drawn)


# Detectors: each gives the rows at which its statistic was higher than ever.


def records(path: Any) -> Records:
    path = np.asarray(path, dtype=np.float64)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(path)[:-1]])
    at = np.nonzero(path > before)[0]
    return at, path[at]


def ours(watch: Watch, rows: Judged) -> dict[str, Records]:
    """Return the wealth of each question, as a multiple of what makes it an alarm."""
    seen: dict[str, Any] = {}
    for name, bets in watch._compared.bets(rows).items():
        rule = watch.rules[name]
        _, wealth = rule.take(Wealth.of(len(rule.p), rule.share), *bets)
        seen[name] = records(wealth / rule.promise.enough)
    return seen


def page_hinkley(x: Any) -> Records:
    detector, path = PageHinkley(threshold=np.inf, mode="up"), np.zeros(len(x))
    for t, value in enumerate(x.tolist()):
        detector.update(value)
        if t >= 30:
            path[t] = detector._sum_increase - detector._min_increase
    return records(path)


def ddm(x: Any) -> Records:
    detector, path = DDM(drift_threshold=np.inf), np.zeros(len(x))
    for t, value in enumerate(x.tolist()):
        detector.update(value)
        if detector._s_min:
            p = detector._p.get()
            level = p + np.sqrt(p * (1 - p) / detector._p.n) - detector._p_min
            path[t] = level / detector._s_min
    return records(path)


def kswin(x: Any) -> Records:
    detector, path = KSWIN(alpha=1e-300, seed=0), np.zeros(len(x))
    for t, value in enumerate(x.tolist()):
        detector.update(value)
        if detector.p_value > 0:
            path[t] = -np.log10(detector.p_value)
    return records(path)


def adwin(x: Any) -> Records:
    at, how = [], []
    for power in np.arange(0.5, 12.1, 0.5):
        detector, found = ADWIN(delta=10.0**-power), None
        for t, value in enumerate(x.tolist()):
            detector.update(value)
            if detector.drift_detected:
                found = t
                break
        if found is None:
            break
        at.append(found)
        how.append(power)
    return np.array(at, dtype=np.int64), np.array(how)


def martingale(novelty: Any, reference: Any) -> Records:
    test = OnlineMartingaleTest(random_state=0, warn=False)
    past = np.concatenate([reference, novelty])
    path = np.empty(len(novelty))
    for t, value in enumerate(novelty.tolist()):
        p = test.compute_p_value(value, past[: len(reference) + t])
        path[t] = np.log10(max(test.update_simple_jumper_martingale(p), 1e-300))
    return records(path)


DETECTORS = {  # name: what it sees, and what it is
    "river ADWIN": ("errors", adwin), "river DDM": ("errors", ddm),
    "river Page–Hinkley": ("errors", page_hinkley),
    "river ADWIN, novelty": ("novelty", adwin), "river KSWIN": ("novelty", kswin),
    "river Page–Hinkley, novelty": ("novelty", page_hinkley),
    "MAPIE martingale": ("martingale", martingale),
}  # fmt: skip


def one_stream(
    seed: int, shift: str, changed: bool, root: Path, weights: Path, only: tuple[str, ...]
) -> dict[str, Records]:
    """Return what every detector makes of one stream."""
    torch.set_num_threads(1)
    world, draw = worlds(root, weights)[shift]
    rng, pool = np.random.default_rng([7, seed, changed]), world.pool
    own = rng.integers(len(pool.y), size=world.calibration)
    world.head.calibration = calibrated(world.head, pool, own)
    before = pool.rows(rng.integers(len(pool.y), size=BEFORE))
    after = draw(rng) if changed else pool.rows(rng.integers(len(pool.y), size=AFTER))
    rows = Judged(*(
        np.concatenate([getattr(before, name), getattr(after, name)])
        for name in ("u", "novelty", "own", "wrong", "far")
    ))  # fmt: skip
    reference = pool.novelty[own]
    scaled = (rows.novelty - reference.mean()) / reference.std()
    found = ours(Watch(world.head, reset=True), rows) if "ours" in only else {}
    given = {"errors": (rows.wrong.astype(float),), "novelty": (scaled,),
             "martingale": (rows.novelty, reference)}  # fmt: skip
    for name, (sees, detect) in DETECTORS.items():
        if name in only:
            found[name] = detect(*given[sees])  # type: ignore[operator]
    return found


def _first(records: Records, enough: float) -> float:
    over = np.nonzero(records[1] > enough)[0]
    return float(records[0][over[0]]) if len(over) else np.inf


def tell_shifts(
    n: int, jobs: int, root: Path, weights: Path, only: tuple[str, ...] = ("ours", *DETECTORS)
) -> None:
    """Print for each shift and detector the share found, and the median delay."""
    quiet: dict[int, list[dict[str, Records]]] = {}
    for shift, (world, _) in worlds(root, weights).items():
        how = {"shift": shift, "root": root, "weights": weights, "only": only}
        if id(world) not in quiet:
            tuning = range(10_000, 10_000 + TUNED)
            quiet[id(world)] = list(many(partial(one_stream, changed=False, **how), tuning, jobs))
        found = list(many(partial(one_stream, changed=True, **how), range(n), jobs))
        for name in found[0]:
            tops = [max(one[name][1], default=-np.inf) for one in quiet[id(world)]]
            enough = float(np.sort(tops)[-1 - TUNED // 20])
            tell(f"{shift} | {name}", [_first(one[name], enough) for one in found])
            if name in (WORSE, STRANGE, MOVED):
                alarms = [_first(one[name], 1 - 1e-12) for one in found]
                tell(f"{shift} | {name}, as promised", alarms)


def tell(what: str, alarms: list[float]) -> None:
    at = np.array(alarms)
    late = at[(at >= BEFORE) & (at < np.inf)] - BEFORE
    early = int((at < BEFORE).sum())
    delay = f"{np.median(late):.0f}" if len(late) else ""
    print(f"| {what} | {100 * len(late) / max(len(at) - early, 1):.0f} % | {delay} | {early} |",
          flush=True)  # fmt: skip


# MAPIE's RiskMonitoring, on the same answers.


def both_answers(seed: int, to: float) -> tuple[float, float]:
    """Return after which row each finds that errors have become more frequent; ∞: never."""
    world = cifar10()
    rng, pool = np.random.default_rng([8, seed]), world.pool
    own = rng.integers(len(pool.y), size=world.calibration)
    world.head.calibration = calibrated(world.head, pool, own)
    drawn = rng.integers(len(pool.y), size=BEFORE + AFTER)
    rows = pool.rows(drawn, with_more_errors(pool, rng, drawn, BEFORE, to))
    wrong = rows.wrong
    worse = ours(Watch(world.head, 0.15, reset=True), rows)[WORSE]
    theirs = RiskMonitoring(risk="accuracy", test_level=0.05, tolerance=0.0, warn=False)
    ones = np.ones(world.calibration, dtype=int)
    theirs.compute_threshold(ones, 1 - pool.wrong[own].astype(int))
    theirs.update(np.ones(len(wrong), dtype=int), 1 - wrong.astype(int))
    low = theirs.online_risk_lower_bound_sequence_history
    return (
        _first(worse, 1 - 1e-12),
        _first(records(low - theirs.threshold), 0.0),
    )


def tell_risk(n: int, jobs: int) -> None:
    for to in (0.0, 0.4, 0.45, 0.5, 0.6, 0.8):
        found = np.array(list(many(partial(both_answers, to=to), range(n), jobs)))
        own, theirs = found.T
        says = [f"{(at < np.inf).sum()}" for at in (own, theirs)]
        late = [f"{np.median(at[at < np.inf]) - BEFORE:.0f}" if (at < np.inf).any() else ""
                for at in (own, theirs)]  # fmt: skip
        alone = int(((theirs < np.inf) & (own > theirs)).sum())
        of = f"{100 * to:.0f} %" if to else "unchanged"
        print(f"| {of} | {says[0]} of {n} | {late[0]} | {says[1]} of {n} | {late[1]} | {alone} |",
              flush=True)  # fmt: skip
