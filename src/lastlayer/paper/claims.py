"""The paper's conclusions and its recommendation, each put to the numbers of a study.

How each is tested was fixed before the study was run (docs/decisions/11).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from lastlayer.analysis import share_of_all
from lastlayer.catalogue.head_cards import GAINS, STARTS
from lastlayer.paper import claim_checks
from lastlayer.paper.claim_checks import Check, Found, Judged, Numbers, Part
from lastlayer.report.data_names import NETWORK, of_the_paper, setting_in_words
from lastlayer.report.section import Section, Tables, Topic
from lastlayer.report.select import HEAD, STREAM, every_option, one_preset, own_rate, with_names
from lastlayer.report.sheet import Sheet, integers, numbers, rows_as, texts, truths
from lastlayer.report.table import Table, number, words
from lastlayer.report.topics.accuracy import on_first_task
from lastlayer.results import Study

UNKNOWN = "not testable with this study"
MARKS = {"holds": "✓", "does not hold": "✗", "too close to call": "≈", UNKNOWN: "–"}
OURS = "cifar100"  # a stream that the paper does not have: in no verdict
STANDS_IN = {"cifar100_mix": "core10_mix"}  # a stream of ours → the paper's, where that is missing
SHOWN = 3  # comparisons of a claim that are told on the page


class Claim(NamedTuple):
    """A conclusion of the paper, and what is asked of the numbers for it to hold."""

    text: str
    test: str
    check: Check | None = None  # None: judged by networks trained end to end


CLAIMS = (
    Claim(
        "Coslayer and WeightNorm are the best reparameterisations overall.",
        "Without a mask, cosine and weight_norm are each above linear, linear_no_bias and "
        "original_weight_norm, averaged over kinds of drift.",
        claim_checks.best_layers,
    ),
    Claim(
        "All layers manage lifelong drift; in incremental and mixed drift only layers based on "
        "angles, and masking, help.",
        "Lifelong: every layer reaches two thirds of every other. Incremental and mixed: "
        "weight_norm, cosine, linear+single and linear+group are above linear, linear_no_bias and "
        "original_weight_norm are not.",
        claim_checks.drifts,
    ),
    Claim(
        "Removing the bias has no effect.",
        "linear_no_bias equals linear in every stream.",
        claim_checks.no_bias,
    ),
    Claim(
        "Masking helps in incremental scenarios, single masking most; Coslayer gains most.",
        "Mean of the five layers: group above none, single above group; what single adds to cosine "
        "is above what it adds to each other layer.",
        claim_checks.masks_incremental,
    ),
    Claim(
        "In lifelong scenarios masking does not help: group equals none, single harms.",
        "Mean of the five layers: single below none, group equals none.",
        claim_checks.masks_lifelong,
    ),
    Claim(
        "Similarity-based layers do well whatever the drift, SLDA most.",
        "In each kind knn, mean and slda are not more than 5 points below weight_norm and "
        "cosine+single, the best gradient layers; slda is above knn and mean over kinds.",
        claim_checks.similarity,
    ),
    Claim(
        "Masking does not work i.i.d., except for Coslayer.",
        "Over data sets and sizes single masking lowers each layer but cosine, which it does not.",
        claim_checks.masks_iid,
    ),
    Claim(
        "WeightNorm and Coslayer_Masked stay competitive with little data; plain linear is good "
        "i.i.d.",
        "On at most 1000 samples weight_norm, cosine+single and linear are less than 5 points "
        "below each other gradient head.",
        claim_checks.little_data,
    ),
    Claim(
        "Similarity-based layers fall slightly behind with little data.",
        "There knn, mean and slda are each below weight_norm or cosine+single, and the best of "
        "them by less than 10 points.",
        claim_checks.similarity_behind,
    ),
    Claim(
        "Group masking improves replay, most at low replay balance.",
        "weight_norm+group is above weight_norm at the lowest balance, not below it at any other, "
        "and its gain is above that at the highest.",
    ),
    Claim(
        "Recommended: WeightNorm (especially in lifelong) or Coslayer_Masked, whatever the "
        "setting.",
        "In each kind of drift, and on little data, weight_norm or cosine+single is not more than "
        "0.5 below every other gradient head, masked or not; in lifelong weight_norm is.",
        claim_checks.recommendation,
    ),
)
CHECKS = (  # small ones, beside the conclusions
    Claim(
        "Masking has no effect on task 0 in lifelong scenarios.",
        "Mean of the five layers, first task at the end: single and group each equal none.",
        claim_checks.first_task,
    ),
    Claim(
        "Five epochs suffice.",
        "All data at once, no mask: the fifth epoch adds no more than 0.5 points to the fourth.",
        claim_checks.five_epochs,
    ),
)


class Setting(NamedTuple):
    """From where heads start, and what else is in a verdict."""

    start: str
    gain: str = GAINS[0]
    ours: bool = False  # with the stream that the paper does not have

    @property
    def counts(self) -> bool:
        """Whether its verdicts are those of the study; else they are shown beside them."""
        return self.gain == GAINS[0] and not self.ours

    def __str__(self) -> str:
        gain = "" if self.gain == GAINS[0] else f", {self.gain} gain"
        return f"{self.start} start{gain}{f', {OURS} too' if self.ours else ''}"


SETTINGS = (
    *(Setting(start) for start in STARTS),
    *(Setting(start, gain) for start in STARTS for gain in GAINS[1:]),
    *(Setting(start, ours=True) for start in STARTS),
)
COLUMNS = (
    integers("number") | texts("claim", "setting") | truths("counts")
    | texts("test", "numbers", "verdict")
)  # fmt: skip
PARTS = (
    texts("claim", "setting") | truths("counts") | texts("part")  # a claim by its number
    | numbers("mean", "low", "high") | integers("pairs") | texts("verdict")
)  # fmt: skip

Row = tuple[int | None, Claim, str, bool, Found]  # number, claim, setting, whether it counts, found


def judge(study: Study) -> Iterator[Row]:
    """Judge every conclusion, the recommendation and the checks, in each setting."""
    data = _Data(study)
    known: dict[tuple[str, str], Found] = {}  # by start and claim
    for setting in SETTINGS:
        found = data.numbers(setting)
        for number_, claim in _numbered():
            if claim.check is not None:
                judged = claim.check(found)
                main = known.setdefault((setting.start, claim.text), judged)
                if setting.counts or judged not in (None, main):  # beside: what says more
                    yield number_, claim, str(setting), setting.counts, judged
    yield from judge_replay(_of_the_paper(study.replay.filter(state="done")))


def _numbered() -> Iterator[tuple[int | None, Claim]]:
    yield from enumerate(CLAIMS, start=1)
    yield from ((None, check) for check in CHECKS)


def judge_replay(networks: pl.DataFrame) -> Iterator[Row]:
    """Judge the tenth conclusion, in each setting of finished networks.

    They are rows of ``Study.replay``, or of an export, which may lack the newest columns.
    """
    (place, claim) = next((n, c) for n, c in _numbered() if c.check is None)
    within = [name for name in ("features", "scenario", *NETWORK) if name in networks.columns]
    parts = networks.group_by(within, maintain_order=True) if networks.height else ()
    found = [(dict(zip(within, key, strict=True)), part) for key, part in parts]
    if not found:
        yield place, claim, "no networks", True, None
    for about, part in sorted(found, key=lambda each: str(each[0])):
        yield place, claim, setting_in_words(about), True, claim_checks.group_masking(part)


class _Data:
    """The accuracies of a study, run by run."""

    def __init__(self, study: Study) -> None:
        self._streams = _of_the_paper(every_option(study)).drop_nulls("final")
        alone = _of_the_paper(study.done.filter(n_tasks=1))
        runs = one_preset(with_names(alone).drop_nulls("final"), ("features", "label"))
        self._iid = own_rate(runs, ("features", "label", "preset", "subset"))
        curves = on_first_task(study, self._streams.filter(kind="lifelong"))
        self._first = {digest: float(curve[-1]) for digest, curve in curves.items()}
        self._epochs = _last_epochs(study, self._iid.filter(pl.col("subset").is_null()))

    def numbers(self, setting: Setting) -> Numbers:
        """Return what a setting says."""
        streams = _chosen(self._streams, setting)
        there = set(streams["scenario"])
        left = {ours for ours, paper in STANDS_IN.items() if paper in there}
        left |= set() if setting.ours else {OURS}
        streams = streams.filter(~pl.col("scenario").is_in(list(left)))
        if setting.ours and OURS not in there:
            return Numbers()
        size = pl.col("subset").cast(pl.String).fill_null("all").alias("size")
        iid = _chosen(self._iid, setting).with_columns(size)
        kinds = streams.partition_by("kind", as_dict=True)
        lifelong = streams.filter(kind="lifelong").with_columns(
            _replaced("digest", self._first).alias("final")
        )
        epochs = iid.filter(mask="none", size="all")
        return Numbers(
            {str(kind): _table(part, ("scenario", "features", "label")) for (kind,), part in
             kinds.items()},
            _table(iid, ("features", "label", "size"), "seed"),
            {"lifelong": _table(lifelong.drop_nulls("final"), ("scenario", "features", "label"))},
            _table(
                pl.concat(
                    epochs.with_columns(
                        _replaced("digest", values).alias("final"),
                        pl.format("{}, epoch {}", "name", pl.lit(epoch)).alias("name"),
                    )
                    for epoch, values in self._epochs.items()
                ).drop_nulls("final"),
                ("features", "label"),
                "seed",
            ),
        )  # fmt: skip


def _of_the_paper(runs: pl.DataFrame) -> pl.DataFrame:
    """Keep the runs on the paper's data: on others its conclusions are not put to a test."""
    names = [name for name in runs["features"].unique() if of_the_paper(name)]
    return runs.filter(pl.col("features").is_in(names))


def _replaced(column: str, values: Mapping[str, float]) -> pl.Expr:
    return pl.col(column).replace_strict(values, default=None, return_dtype=pl.Float64)


def _chosen(runs: pl.DataFrame, setting: Setting) -> pl.DataFrame:
    """Keep one start and one gain; of two batch sizes the larger, where a head has both."""
    there = (pl.col("start").is_null() | (pl.col("start") == setting.start)) & (
        pl.col("gain").is_null() | (pl.col("gain") == setting.gain)
    )
    cell = [*STREAM, "preset", "subset", *HEAD]
    largest = pl.col("batch_size").max().over(cell)
    return runs.filter(there).filter(pl.col("batch_size").eq_missing(largest))


def _table(
    runs: pl.DataFrame, place: tuple[str, ...], by: str = "order"
) -> dict[tuple[str, ...], dict[str, dict[int, float]]]:
    """Return place → head → order or seed → percent."""
    found: dict[tuple[str, ...], dict[str, dict[int, float]]] = defaultdict(dict)
    for *where, name, key, final in runs.select(*place, "name", by, "final").rows():
        found[tuple(where)].setdefault(name, {})[key] = 100 * final
    return found


def _last_epochs(study: Study, runs: pl.DataFrame) -> dict[int, dict[str, float]]:
    """Return the accuracy after the fourth and the fifth epoch, by run."""
    five = runs.filter(pl.col("epochs") == 5, pl.col("lr").is_not_null())
    right, sizes = (study.arrays(name, five) for name in ("right_by_class", "n_per_class"))
    curves = {digest: share_of_all(right[digest], sizes[digest]) for digest in right}
    return {epoch: {d: float(curve[epoch]) for d, curve in curves.items()} for epoch in (4, 5)}


def claims(study: Study) -> pl.DataFrame:
    """Judge the conclusions by the numbers of a study."""
    return claim_rows(judge(study))


def claim_rows(judged: Iterator[Row]) -> pl.DataFrame:
    """Return a row for each claim and setting."""
    rows = [
        (n, claim.text, setting, counts, claim.test, tell(found),
         found.verdict if found else UNKNOWN)
        for n, claim, setting, counts, found in judged
    ]  # fmt: skip
    return rows_as(COLUMNS, rows).sort("number", "claim", nulls_last=True, maintain_order=True)


def claim_parts(study: Study) -> pl.DataFrame:
    """Return every comparison behind the verdicts; a claim by its number, a check by its words."""
    found = sorted(judge(study), key=lambda row: len(CLAIMS) + 1 if row[0] is None else row[0])
    return rows_as(
        PARTS,
        (
            (str(n or claim.text), setting, counts and part.counts, part.text, *_ends(part),
             part.verdict)
            for n, claim, setting, counts, judged_ in found
            for part in (judged_.parts if judged_ else ())
        ),
    )  # fmt: skip


def _ends(part: Part) -> tuple[float | None, float | None, float | None, int]:
    """Return a difference as it is stored: an interval without end has none."""
    gap = part.difference
    low, high = (None if abs(end) == float("inf") else end for end in (gap.low, gap.high))
    return gap.mean, low, high, gap.n


def tell(found: Judged | None) -> str | None:
    """Say which comparisons decide, and how many there are."""
    if found is None:
        return None
    counted = [part for part in found.parts if part.counts]
    deciding = [part for part in counted if part.verdict == found.verdict] or counted
    nearest = sorted(deciding, key=lambda part: abs(part.difference.mean))[:SHOWN]
    told = "; ".join(f"{part.text} {part.difference}" for part in nearest)
    rest = len(counted) - len(nearest)
    return told if not rest else f"{told}; and {rest} more"


SHEET = Sheet("claims", COLUMNS, claims)
PARTS_SHEET = Sheet("claim_parts", PARTS, claim_parts)


def section(tables: Tables) -> Section | None:
    """Return the conclusions with our numbers, where at least one can be tested."""
    table = tables["claims"]
    known = table.filter(pl.col("verdict") != UNKNOWN, "counts")
    if known.is_empty():
        return None
    if not known["number"].count():  # a list of all that cannot be told helps nobody
        table = table.filter(pl.col("number").is_null())
    settings = table.filter("counts")["setting"].unique(maintain_order=True).to_list()
    rows = []
    for (place, claim), part in table.group_by("number", "claim", maintain_order=True):
        first = part.row(0, named=True)
        counted, beside = part.filter("counts"), part.filter(~pl.col("counts"))
        told = [_verdict(row, settings) for row in counted.iter_rows(named=True)]
        others = [f"{row['setting']}: {row['verdict']}" for row in beside.iter_rows(named=True)]
        which = number(place, digits=0) if isinstance(place, int) else words("check")
        said = (str(claim), first["test"], " ".join(told), "; ".join(others))
        rows.append([which, *map(words, said)])
    text = (
        f"{_counts(known)} Each verdict rests on differences paired over orders or seeds, with "
        "their 98 % intervals in brackets; half a point is no difference. All heads of a verdict "
        "start alike; weight_norm has unit gain. How each claim is tested was fixed before the "
        "study was run (docs/decisions/11). tables/claim_parts.csv has every comparison.",
    )
    header = ("no.", "the paper concludes", "it holds here if", "verdict, and what decides",
              "beside it")  # fmt: skip
    shown = Table(("claims",), "The paper's conclusions and this study.", header, rows)
    return Section("claims", "What the paper concludes", text, (), [shown])


TOPIC = Topic(section, needs=[SHEET], also=[PARTS_SHEET])


def _verdict(row: dict[str, Any], settings: list[str]) -> str:
    numbers_ = f": {row['numbers']}" if row["numbers"] else ""
    where = f"{row['setting']}: " if len(settings) > 1 else ""
    return f"{where}{MARKS[row['verdict']]} {row['verdict']}{numbers_}."


def _counts(known: pl.DataFrame) -> str:
    """Count verdicts of the numbered claims, setting by setting."""
    said = []
    for (setting,), part in known.drop_nulls("number").group_by("setting", maintain_order=True):
        found = {v: part.filter(verdict=v).height for v in MARKS}
        listed = ", ".join(f"{n} {v}" for v, n in found.items() if n)
        said.append(f"{setting}: {listed}")
    if not said:
        return "This study can tell none of the paper's conclusions, only small checks beside them."
    return f"Of the paper's conclusions and its recommendation, {'; '.join(said)}."
