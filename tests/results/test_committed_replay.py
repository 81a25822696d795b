"""The numbers of the pages about replay are those of the committed networks."""

import itertools
from pathlib import Path

import polars as pl
import pytest
from scipy import stats

from lastlayer.analysis.verdict import paired_difference
from lastlayer.catalogue.head_cards import split_name
from lastlayer.replay.training import Network
from lastlayer.results.tables import SHARES, replay_accuracy
from lastlayer.study.plan_file import read_plan

TOP = Path(__file__).parents[2]
FOLDER = TOP / "results" / "replay"
PAGES = TOP / "docs" / "replay.md", FOLDER / "README.md"
FEW = "20, authors', 100 remembered"
LONG = "50, authors', 100 remembered"
SETTINGS = {
    "5": (5, "pytorch", 2000, "float32"),
    "20": (20, "pytorch", 2000, "float32"),
    "20, authors'": (20, "authors", 2000, "bfloat16"),
    FEW: (20, "authors", 100, "bfloat16"),
    LONG: (50, "authors", 100, "bfloat16"),
    "5, bfloat16": (5, "pytorch", 2000, "bfloat16"),
}
PLANS = {
    "5": "5-epochs.toml",
    "20": "20-epochs.toml",
    "20, authors'": "authors-20-epochs.toml",
    FEW: "authors-20-epochs-100-remembered.toml",
    LONG: "authors-50-epochs-100-remembered.toml",
    "5, bfloat16": "5-epochs-bfloat16.toml",
}
BALANCES = (0.01, 0.1, 0.5, 1.0)
NAMES = ("linear", "linear+group", "weight_norm", "weight_norm+group")


def networks(setting: str) -> pl.DataFrame:
    epochs, start, per_class, precision = SETTINGS[setting]
    runs = pl.read_csv(FOLDER / "runs.csv", schema_overrides={"diverged": pl.Int64})
    return runs.filter(epochs=epochs, start=start, per_class=per_class, precision=precision)


@pytest.fixture(name="table", scope="module")
def _table() -> pl.DataFrame:
    return replay_accuracy(networks("5"))


@pytest.fixture(name="rows", scope="module")
def _rows() -> list[list[str]]:
    """Take the cells of all tables of both pages."""
    lines = [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    return [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines if "|" in line]


def cell(table: pl.DataFrame, balance: float, name: str) -> dict[str, float | None]:
    head, mask = split_name(name)
    return table.filter(balance=balance, head=head, mask=mask).row(0, named=True)


def test_none_is_missing() -> None:
    for setting, plan in PLANS.items():
        blocks = read_plan(str(FOLDER / plan))[0].replay
        wanted = [run for block in blocks for run in block.runs((0, 1, 2))]
        rows = list(networks(setting).iter_rows(named=True))
        found = [Network(r["head"], r["mask"], r["balance"], r["seed"]) for r in rows]
        assert len(found) == len(wanted)
        assert set(found) == {run.network for run in wanted}
        for row in rows:
            assert all(row[name] == value for name, value in wanted[0].settings.items()
                       if name in row and name != "balance")  # fmt: skip


@pytest.mark.parametrize(("balance", "setting"), [
    (0.01, "5"), (0.1, "5"), (0.5, "5"), (1.0, "5"), (0.01, "20"), (0.1, "20"),
    (0.01, "20, authors'"), (0.1, "20, authors'"), (0.5, "20, authors'"), (1.0, "20, authors'"),
    (0.01, FEW), (0.01, LONG), (0.1, LONG),
])  # fmt: skip
def test_accuracy(rows: list[list[str]], balance: float, setting: str) -> None:
    table = replay_accuracy(networks(setting))
    shown = [row for row in rows if row[:2] == [f"{balance:g}", setting] and len(row) == 7]
    assert len(shown) == (2 if setting == "5" else 1)
    for row, (column, name) in itertools.product(shown, enumerate(NAMES, 3)):
        found = cell(table, balance, name)
        mean, deviation = found["mean"], found["deviation"]
        assert mean is not None
        assert deviation is not None
        assert row[column] == f"{100 * mean:.2f} ± {100 * deviation:.2f}"
        assert row[2] == f"{found['images']:,.0f}"


def test_causes_of_loss(table: pl.DataFrame, rows: list[list[str]]) -> None:
    shown = [row for row in rows if len(row) == 6 and row[1] in NAMES]
    balances = [balance for balance in BALANCES for _ in NAMES]
    assert len(shown) == len(balances)
    for balance, (_, name, lost, *shares) in zip(balances, shown, strict=True):
        found = cell(table, balance, name)
        assert lost == f"{found['lost'] / 100:.1f}"  # of 10,000
        assert shares == [f"{100 * found[share]:.0f} %" for share in SHARES]


def test_what_group_masking_adds(rows: list[list[str]]) -> None:
    shown = [row for row in rows if len(row) == 4 and row[1] in SETTINGS]
    assert len(shown) == 13
    for balance, setting, *gains in shown:
        for layer, text in zip(("linear", "weight_norm"), gains, strict=True):
            some = networks(setting).filter(head=layer, balance=float(balance)).sort("seed")
            none, group = (some.filter(mask=mask)["final"].to_numpy() for mask in ("none", "group"))
            gain = 100 * (group - none)
            assert text == f"{gain.mean():+.2f} ± {gain.std():.2f}"


def test_the_page_has_the_gains_of_the_networks() -> None:
    gains = pl.read_csv(FOLDER / "tables" / "masking_gain.csv")
    assert len(gains) == 27
    for row in gains.iter_rows(named=True):
        words = row["setting"]
        start = "authors" if "authors" in words else "pytorch"
        per_class = 100 if "100 remembered" in words else 2000
        precision = "bfloat16" if "bfloat16" in words else "float32"
        of = (row["epochs"], start, per_class, precision)
        setting = next(name for name, known in SETTINGS.items() if known == of)
        some = networks(setting).filter(head=row["head"], balance=row["balance"]).sort("seed")
        group, none = (100 * some.filter(mask=m)["final"].to_numpy() for m in ("group", "none"))
        found = paired_difference(group, none)
        shown = [row[name] for name in ("mean", "low", "high")]
        assert shown == pytest.approx([found.mean, found.low, found.high], rel=1e-5)


def test_numbers_in_the_text() -> None:
    text = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    runs, longer = networks("5"), networks("20")

    def mean(of: pl.DataFrame, balance: float, name: str, what: pl.Expr) -> str:
        head, mask = split_name(name)
        some = of.filter(balance=balance, head=head, mask=mask)
        return f"{100 * some.select(what.mean()).item():.1f}"

    forgetting, final = pl.col("forgetting"), pl.col("final")
    for balance in (0.01, 1.0):
        less, more = (mean(runs, balance, name, forgetting) for name in ("linear+group", "linear"))
        assert f"{less} % instead of {more} % at {balance:g}" in text
    table = pl.read_csv(FOLDER / "tables" / "replay.csv")
    five = pl.col("setting").str.starts_with("5 epochs")
    table = table.filter(five, ~pl.col("setting").str.contains("bfloat16"))
    for balance in (0.01, 1.0):
        some = table.filter(balance=balance, head="linear")
        after = [some.filter(mask=mask)["learned"].item() for mask in ("group", "none")]
        assert f"{after[0]:.1f} instead of {after[1]:.1f} % at {balance:g}" in text
    weights, drift = (pl.col("lost") * pl.col(share) / 10_000 for share in (SHARES[0], SHARES[2]))
    for balance in (0.01, 1.0):
        for layer in ("linear", "weight_norm"):
            before, after = (mean(runs, balance, f"{layer}{m}", weights) for m in ("", "+group"))
            assert f"from {before} to {after} %" in text
    for layer in ("linear", "weight_norm"):
        before, after = (mean(runs, 0.01, f"{layer}{m}", drift) for m in ("", "+group"))
        assert f"({before} to {after} %" in text
    falls = [
        f"{name} {'falls ' * (name == 'linear')}from {mean(runs, 0.1, name, final)} "
        f"to {mean(longer, 0.1, name, final)} %"
        for name in ("linear", "linear+group")
    ]
    assert ", ".join(falls) in text


def test_what_20_epochs_of_the_authors_say() -> None:
    text = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    pairs = networks("20, authors'").pivot(
        "mask", index=["head", "balance", "seed"], values="final"
    )
    helps = pairs.filter(pl.col("group") > pl.col("none"))
    assert f"It helps in {len(helps)} of the {len(pairs)} pairs" in text
    few, many = (replay_accuracy(networks(s)) for s in (FEW, "20, authors'"))
    apart = few.join(many, on=["balance", "head", "mask"]).select(
        100 * (pl.col("mean") - pl.col("mean_right")).abs().max()
    )
    assert f"each mean is within {apart.item() + 0.05:.1f} points" in text


def test_what_50_epochs_of_the_authors_say() -> None:
    text = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    runs = networks(LONG)
    pairs = runs.pivot("mask", index=["head", "balance", "seed"], values="final")
    assert (pairs["group"] > pairs["none"]).all()
    assert f"helps in all {len(pairs)} pairs" in text
    table = replay_accuracy(runs)
    for name in ("linear+group", "linear"):
        more, less = (100 * (cell(table, balance, name)["mean"] or 0) for balance in (0.1, 0.01))
        assert f"{more:.1f} instead of {less:.1f} % ({name})" in text
    for layer, balance in itertools.product(("linear", "weight_norm"), (0.01, 0.1)):
        some = runs.filter(head=layer, balance=balance).sort("seed")
        group, none = (100 * some.filter(mask=m)["final"].to_numpy() for m in ("group", "none"))
        assert paired_difference(group, none).low > 0  # "for every gain of 50 epochs"
    both = table.join(replay_accuracy(networks("20, authors'")), on=["balance", "head", "mask"])
    at = both.filter(balance=0.1)
    below = 100 * (at["mean_right"] - at["mean"])
    assert f"ends {below.min():.0f} to {below.max():.0f} points below" in text


def test_both_precisions_are_shown_seed_by_seed(rows: list[list[str]]) -> None:
    for name in ("linear", "linear+group"):
        head, mask = split_name(name)
        single, half = (
            100 * networks(s).filter(balance=0.01, head=head, mask=mask).sort("seed")["final"]
            for s in ("5", "5, bfloat16")
        )
        seeds = [", ".join(f"{value:.2f}" for value in values) for values in (single, half)]
        p = stats.ttest_rel(half, single).pvalue
        wanted = [name, *seeds, f"{(half - single).mean():+.2f}", f"{p:.2f}"]
        assert wanted in rows
