"""The numbers of docs/replay.md are those of the committed networks."""

from pathlib import Path

import polars as pl
import pytest

from lastlayer.results.replay_tables import SHARES, replay_accuracy

TOP = Path(__file__).parents[2]
NAMES = ("linear", "linear+group", "weight_norm", "weight_norm+group")


@pytest.fixture(name="table", scope="module")
def _table() -> pl.DataFrame:
    file = TOP / "results" / "replay" / "runs.csv"
    return replay_accuracy(pl.read_csv(file, schema_overrides={"diverged": pl.Int64}))


@pytest.fixture(name="rows", scope="module")
def _rows() -> list[list[str]]:
    """Take the cells of all tables of the page."""
    lines = (TOP / "docs" / "replay.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines if "|" in line]


def cell(table: pl.DataFrame, balance: float, name: str) -> dict[str, float | None]:
    head, _, mask = name.partition("+")
    return table.filter(balance=balance, head=head, mask=mask or "none").row(0, named=True)


@pytest.mark.parametrize("balance", [0.01, 0.1, 1.0])
def test_accuracy(table: pl.DataFrame, rows: list[list[str]], balance: float) -> None:
    label = "1 (one seed)" if balance == 1 else f"{balance:g}"
    row = next(row for row in rows if row[0] == label and row[1].replace(",", "").isdigit())
    for name, text in zip(NAMES, row[2:], strict=True):
        found = cell(table, balance, name)
        mean, deviation = found["mean"], found["deviation"]
        assert mean is not None
        around = "" if deviation is None else f" ± {100 * deviation:.2f}"
        assert text == f"{100 * mean:.2f}{around}"
        assert row[1] == f"{found['images']:,.0f}"


def test_causes_of_loss(table: pl.DataFrame, rows: list[list[str]]) -> None:
    shown = [row for row in rows if len(row) == 6 and row[1] in NAMES]
    balances = [balance for balance in (0.01, 0.1, 1.0) for _ in NAMES]
    assert len(shown) == len(balances)
    for balance, (_, name, lost, *shares) in zip(balances, shown, strict=True):
        found = cell(table, balance, name)
        assert lost == f"{found['lost'] / 100:.1f}"  # of 10,000
        assert shares == [f"{100 * found[share]:.0f} %" for share in SHARES]
