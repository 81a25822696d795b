"""The page holds the numbers of the store, in words, tables and charts, for every reader."""

import re
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest

from lastlayer.report import write
from lastlayer.results import load_study as load
from made_up import ALL, Stream, write_study
from read_page import Page

SECTIONS = ("summary", "ranking", "accuracy", "first-task", "repairs", "norms", "weight-change",
            "interference", "preliminary", "subsets",
            "claims", "masks", "similarity", "presets", "published",
            "runs")  # fmt: skip


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(folder / "report.html")


def finals(folder: Path, **where: object) -> pl.DataFrame:
    return load(folder).done.filter(**where).with_columns(pl.col("final") * 100)


def number(text: str) -> float:
    return float(text.partition(" ")[0].replace("−", "-"))


def test_it_has_every_section(page: Page) -> None:
    assert tuple(page.sections) == (*SECTIONS, "plan")


def test_it_is_small(folder: Path) -> None:
    assert (folder / "report.html").stat().st_size < 10_000_000


def test_tables_hold_the_stores_accuracies(page: Page, folder: Path) -> None:
    rows = page.rows("accuracy-cifar100_lifelong-resnet20-cifar100")
    assert [row["head"] for row in rows] == sorted(ALL, key=ALL.index)
    for row in rows:
        head, _, mask = row["head"].partition("+")
        runs = finals(folder, scenario="cifar100_lifelong", head=head, mask=mask or "none")
        mean, deviation = runs["final"].mean(), runs["final"].std(ddof=0)
        assert row["final accuracy, %"] == f"{mean:.2f} ± {deviation:.2f}"
        assert row["forgetting, points"] == f"{100 * runs['forgetting'].mean():.2f}"
        assert row["runs"] == "3"


def test_every_chart_holds_the_numbers_of_its_table(page: Page, folder: Path) -> None:
    """Each row of each chart is a row of a CSV file, and those are tested against the store."""
    files = sorted((folder / "tables").glob("*.csv"))
    known = {path.stem: _floats(pl.read_csv(path, infer_schema_length=None)) for path in files}
    known["summary"] = known["accuracy"] | known["iid"]  # the one chart made of two tables
    assert len(page.specs) == 51
    for name, spec in page.specs.items():
        values = {value for row in spec["datasets"]["rows"] for value in _numbers(row)}
        assert values, name
        assert any(values <= numbers for numbers in known.values()), name


def _numbers(row: dict[str, object]) -> list[float]:
    derived = ("low", "high", "place", "end", "last")  # made from the others
    numbers = (v for k, v in row.items() if k not in derived and not isinstance(v, str | bool))
    return [float(value) for value in numbers if value is not None]  # type: ignore[arg-type]


def _floats(table: pl.DataFrame) -> set[float]:
    numeric = table.select(pl.selectors.numeric().cast(pl.Float64))
    return {value for column in numeric for value in column.drop_nulls()}


SOURCES = {  # tables of the page by how their names begin → the CSV files that they show
    "summary": ("accuracy", "iid"),
    "ranking": ("accuracy",),
    "accuracy": ("accuracy",),
    "masks": ("by_mask",),
    "layers-and-masks": ("by_kind",),
    "similarity": ("by_kind",),
    "subsets": ("iid", "subset_average"),
    "preliminary": ("iid",),
    "masked": ("iid",),
    "learning-rates": ("learning_rates",),
    "backbones": ("backbones",),
    "published": ("published",),
    "riskiest-pairs": ("riskiest_pairs",),
    "first-task": ("first_task",),
    "repairs": ("repairs",),
    "fates": ("repairs",),
    "repair-shares": ("repairs",),
    "presets": ("presets",),
    "data": ("data",),
}
DERIVED = ("forgotten, points", "lost, %", "no.")  # differences, sums, and counts of rows


def test_every_number_of_every_table_is_in_its_file(page: Page, folder: Path) -> None:
    for name in page.tables.keys() - {"claims"}:
        source = max((key for key in SOURCES if name.startswith(key)), key=len)
        known = [
            _floats(pl.read_csv(folder / "tables" / f"{file}.csv", infer_schema_length=None))
            for file in SOURCES[source]
        ]
        written = {
            f"{abs(value):.{digits}f}" for each in known for value in each for digits in (0, 2, 3)
        }
        for row in page.rows(name):
            for column, text in row.items():
                numbers = [] if column in DERIVED else re.findall(NUMBER, text)
                assert set(numbers) <= written, (name, column, text)


# A number with two or three digits after the point, and nothing else: not a name, not a sum.
NUMBER = r"(?<![\w+.])\d+\.\d{2,3}(?![\d.])"


def test_the_summary_says_what_the_chart_shows(page: Page, folder: Path) -> None:
    runs = finals(folder, scenario="cifar10", preset="paper")
    means = runs.group_by("head", "mask").agg(pl.col("final").mean()).sort("final")
    best = means.row(-1, named=True)
    linear = means.filter(head="linear", mask="none")["final"][0]
    row = page.rows("summary")[0]
    assert number(row["final accuracy, %"]) == pytest.approx(best["final"], abs=0.005)
    assert row["head"].partition("+")[0] == best["head"]
    assert f"{best['final'] - linear:.1f} points below the best" in page.words


def test_subset_tables_have_published_numbers_in_brackets(page: Page, folder: Path) -> None:
    rows = {row["head"]: row for row in page.rows("subsets-cifar10-resnet20-cifar100-class")}
    runs = finals(folder, features="cifar10/resnet20-cifar100", head="mean", n_tasks=1)
    mean = runs.filter(pl.col("subset").is_null())["final"].mean()
    assert rows["mean"]["all"].startswith(f"{mean:.2f} ± ")
    assert rows["mean"]["all"].endswith("(63.27)")
    assert rows["linear"]["all"].endswith("(75.13~)")


def test_published_numbers_are_listed_with_ours(page: Page, folder: Path) -> None:
    place = ("cifar10/resnet20-cifar100", "slda", "all")
    rows = page.rows("published")
    row = next(r for r in rows if (r["features"], r["head"], r["samples"]) == place)
    runs = finals(folder, features=row["features"], head="slda", n_tasks=1)
    mean = runs.filter(pl.col("subset").is_null())["final"].mean()
    assert number(row["ours, %"]) == pytest.approx(mean, abs=0.005)
    gap = number(row["ours, %"]) - number(row["published, %"])
    assert number(row["ours − published"]) == pytest.approx(gap, abs=0.011)
    assert row["verdict"] == "differs"


def test_it_says_why_a_number_cannot_be_judged(page: Page, folder: Path) -> None:
    table = pl.read_csv(folder / "tables" / "published.csv", infer_schema_length=None)
    wide = table.filter(verdict="wide", again=False).height
    assert 0 < wide < sum(row["verdict"] == "wide" for row in page.rows("published"))
    assert f"{wide} more are wide, they cannot be judged: their deviation is 5 or" in page.words
    assert "two backbones" not in page.words


def test_claims_are_told_with_numbers(page: Page) -> None:
    rows = page.rows("claims")
    assert [row["no."] for row in rows] == [*(str(n) for n in range(1, 12)), "check", "check"]
    told = [row["verdict, and what decides"] for row in rows]
    assert all(text.startswith("uniform start: ") for text in told[:9])
    assert told[9] == "no networks: – not testable with this study."
    assert all("normal start: – not testable" in text for text in told[:2])  # nothing was run so


def test_claims_are_made_of_the_stores_numbers(page: Page, folder: Path) -> None:
    layers = ("linear", "linear_no_bias", "weight_norm", "original_weight_norm", "cosine")
    runs = finals(folder, preset="paper", mask="none").filter(pl.col("n_tasks") > 1)
    means = dict(runs.group_by("head").agg(pl.col("final").mean()).rows())  # 3 orders of 3 streams
    parts = pl.read_csv(folder / "tables" / "claim_parts.csv", infer_schema_length=None)
    first = dict(parts.filter(claim="1", counts=True).select("part", "mean").rows())
    assert first == pytest.approx(
        {
            f"{ours} − {other}": means[ours] - means[other]
            for ours in ("cosine", "weight_norm")
            for other in layers
            if other not in ("cosine", "weight_norm")
        },
        rel=1e-4,
    )
    told = page.rows("claims")[0]["verdict, and what decides"]
    shown = re.findall(r"(\w+ − \w+) ([+-][\d.]+) \(", told)
    assert len(shown) == 3
    for part, mean in shown:
        assert float(mean) == pytest.approx(first[part], abs=0.006)


def test_riskiest_pairs_are_named(page: Page) -> None:
    row = page.rows("riskiest-pairs-cifar10-resnet20-cifar100")[0]
    assert row["data of"].startswith("class ")
    assert number(row["risk"]) > 1


def test_it_asks_nothing_of_other_machines(page: Page) -> None:
    links = [given.get(name, "") or "" for _, given in page.tags for name in ("src", "href")]
    assert all(link.startswith("#") for link in links if link)


def test_it_is_built_for_every_reader(page: Page) -> None:
    given = dict(page.tags)
    assert given["html"]["lang"] == "en"
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    steps = [b - a for a, b in zip(page.headings, page.headings[1:], strict=False)]
    assert max(steps) <= 1
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert [tag for tag, _ in page.tags].count("caption") == len(page.tables)


@pytest.mark.slow
def test_figures_and_tables_lie_beside_it(page: Page, folder: Path) -> None:
    for name in page.specs:
        root = ElementTree.parse(folder / "figures" / f"{name}.svg").getroot()
        assert any(element.tag.endswith("path") for element in root.iter())
        assert (folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    for name, (head, *rows) in page.tables.items():
        text = (folder / "tables" / f"{name}.md").read_text()
        assert text.count("\n| ") == 1 + len(rows)
        assert all(heading in text for heading in head)
        latex = (folder / "tables" / f"{name}.tex").read_text(encoding="utf-8")
        assert r"\begin{tabular}" in latex
        assert latex.isascii(), name  # so it needs no package


def test_the_tables_alone_give_the_same_page(tmp_path: Path, undrawn: None) -> None:
    folder = write_study(tmp_path / "study", [Stream(heads=("linear", "slda"))])
    whole = write(folder).read_text()
    (folder / "results.sqlite").unlink()
    (folder / "report.html").unlink()
    assert write(folder).read_text() == whole
