"""The page holds the store's numbers, leaves out what is not there, and says what went wrong."""

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from made_up import ALL, Stream, iid, write_study
from read_page import Page

from lastlayer import __version__
from lastlayer.errors import FileFormatError, MissingFileError, WriteError
from lastlayer.report import write
from lastlayer.results import load

SECTIONS = ("summary", "claims", "accuracy", "masks", "similarity", "subsets", "preliminary",
            "published", "norms", "weight-change", "interference", "first-task", "causes",
            "presets", "runs")  # fmt: skip


def sections(page: Page) -> list[str]:
    return [str(given["id"]) for tag, given in page.tags if tag == "section"]


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(folder / "report.html")


def finals(folder: Path, **where: object) -> pl.DataFrame:
    return load(folder).done.filter(**where).with_columns(pl.col("final") * 100)


def number(text: str) -> float:
    return float(text.partition(" ")[0].replace("−", "-"))


def test_it_has_every_section(page: Page) -> None:
    assert tuple(sections(page)) == (*SECTIONS, "plan")


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
    assert len(page.specs) == 48
    for name, spec in page.specs.items():
        values = {value for row in spec["datasets"]["rows"] for value in _numbers(row)}
        assert values, name
        assert any(values <= numbers for numbers in known.values()), name


def _numbers(row: dict[str, object]) -> list[float]:
    derived = ("low", "high", "place", "end")  # made from the others
    numbers = (v for k, v in row.items() if k not in derived and not isinstance(v, str | bool))
    return [float(value) for value in numbers if value is not None]  # type: ignore[arg-type]


def _floats(table: pl.DataFrame) -> set[float]:
    numeric = table.select(pl.selectors.numeric().cast(pl.Float64))
    return {value for column in numeric for value in column.drop_nulls()}


SOURCES = {  # tables of the page by how their names begin → the CSV files that they show
    "summary": ("accuracy", "iid"),
    "accuracy": ("accuracy",),
    "masks": ("by_mask",),
    "layers-and-masks": ("by_kind",),
    "similarity": ("by_kind",),
    "subsets": ("iid", "subset_average"),
    "preliminary": ("iid",),
    "learning-rates": ("learning_rates",),
    "backbones": ("backbones",),
    "published": ("published",),
    "riskiest-pairs": ("riskiest_pairs",),
    "first-task": ("first_task",),
    "causes": ("causes",),
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


def test_claims_are_told_with_numbers(page: Page) -> None:
    rows = page.rows("claims")
    assert [row["no."] for row in rows] == [str(n) for n in range(1, 11)]
    assert all(row["our numbers, in %"] for row in rows[:9])
    assert rows[9]["verdict"] == "– not testable with this study"


def test_claims_are_made_of_the_stores_numbers(page: Page, folder: Path) -> None:
    layers = ("linear", "linear_no_bias", "weight_norm", "original_weight_norm", "cosine")
    runs = finals(folder, preset="paper", mask="none").filter(pl.col("n_tasks") > 1)
    means = dict(runs.group_by("head").agg(pl.col("final").mean()).rows())  # 3 orders of 3 streams
    told = page.rows("claims")[0]
    assert sorted(told["our numbers, in %"].split(", ")) == sorted(
        f"{name} {means[name]:.1f}" for name in layers
    )
    best = min(means["cosine"], means["weight_norm"])
    holds = best > max(means[name] for name in layers if name not in ("cosine", "weight_norm"))
    assert told["verdict"] == ("✓ holds" if holds else "✗ does not hold")


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


def test_figures_and_tables_lie_beside_it(page: Page, folder: Path) -> None:
    for name in page.specs:
        root = ElementTree.parse(folder / "figures" / f"{name}.svg").getroot()
        assert any(element.tag.endswith("path") for element in root.iter())
        assert (folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    for name, (head, *rows) in page.tables.items():
        text = (folder / "tables" / f"{name}.md").read_text()
        assert text.count("\n| ") == 1 + len(rows)
        assert all(heading in text for heading in head)
        assert r"\begin{tabular}" in (folder / "tables" / f"{name}.tex").read_text()


def test_the_tables_alone_give_the_same_page(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", [Stream(heads=("linear", "slda"))])
    whole = write(folder).read_text()
    (folder / "results.sqlite").unlink()
    (folder / "report.html").unlink()
    assert write(folder).read_text() == whole


def test_one_scenario_and_one_head(tmp_path: Path) -> None:
    page = Page(write(write_study(tmp_path, [Stream(heads=("slda",), orders=(0,))])))
    assert sections(page) == ["summary", "accuracy", "causes", "runs", "plan"]
    assert "best is slda with" in page.words


def test_without_streams_there_is_a_summary_too(tmp_path: Path) -> None:
    study = write_study(tmp_path, [iid("mine", "class", 4, heads=("mean", "knn"))])
    page = Page(write(study))
    assert sections(page) == ["summary", "preliminary", "runs", "plan"]
    assert "mine, class: best on all data at once is" in page.words


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (("",), "The selection is made on test accuracy, as in the paper"),
        ((" (0.2 held out)",), "The selection is made on training data that were held out"),
        (("", " (0.2 held out)"), "it is made on held-out training data"),
    ],
)
def test_the_page_says_what_a_selection_is_made_on(
    tmp_path: Path, ends: tuple[str, ...], said: str
) -> None:
    some = {"heads": ("linear", "cosine"), "lrs": (0.1, 0.01), "orders": (0,)}
    study = write_study(tmp_path, [iid(f"mine{end}", "class", 4, **some) for end in ends])
    page = Page(write(study))
    assert said in page.words
    assert len(page.rows("learning-rates")) == 2 * len(ends)


def test_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    names = [
        "</script><script>alert(1)</script>",
        "<b>bold</b> & co",
        "猫",
        "كلب",
        "|\n`",
        "a'\"\\",
    ]
    stream = Stream("incremental:3", "<i>mine</i>", n_classes=6, n_tasks=3, names=names)
    folder = write_study(tmp_path, [stream])
    page = Page(write(folder))
    assert not {"b", "i"} & {tag for tag, _ in page.tags}
    assert "alert(1)" in page.words
    pairs = page.rows("riskiest-pairs-i-mine-i-incremental-3")
    assert {row["data of"] for row in pairs} <= set(names)
    text = (folder / "tables" / "riskiest-pairs-i-mine-i-incremental-3.md").read_text()
    assert "<script" not in text
    assert len({line.replace(r"\|", "").count("|") for line in text.splitlines()[2:]}) == 1


def test_an_empty_study_says_so(tmp_path: Path) -> None:
    page = Page(write(write_study(tmp_path, [])))
    assert "This study is empty" in page.words
    assert sections(page) == ["runs", "plan"]


def test_a_study_in_progress_shows_what_is_there(tmp_path: Path) -> None:
    streams = [Stream(heads=("mean",)), Stream(heads=("slda",), state="planned")]
    page = Page(write(write_study(tmp_path, streams)))
    assert "in progress: 3 of 6 runs are still to be made" in page.words
    assert "best is mean with" in page.words
    assert page.rows("troubles")[0]["what happened"] == "not run yet"


def test_a_study_that_has_only_been_planned(tmp_path: Path) -> None:
    page = Page(write(write_study(tmp_path, [Stream(state="planned")])))
    assert "57 of 57 runs are still to be made" in page.words
    assert sections(page) == ["runs", "plan"]


def test_failed_and_diverged_runs_are_named(tmp_path: Path) -> None:
    streams = [
        Stream(heads=("linear", "mean"), diverged=(0, 1)),
        Stream(heads=("slda",), state="failed"),
    ]
    page = Page(write(write_study(tmp_path, streams)))
    assert "3 runs failed" in page.words
    assert "2 runs diverged" in page.words
    told = {row["head"]: row["what happened"] for row in page.rows("troubles")}
    assert told["slda"] == "failed: no <room> left"
    row = {row["head"]: row for row in page.rows("accuracy-cifar10-resnet20-cifar100")}["linear"]
    assert row["final accuracy, %"].endswith("(2 diverged)")


def test_a_head_that_always_diverges(tmp_path: Path) -> None:
    page = Page(write(write_study(tmp_path, [Stream(heads=("linear",), diverged=(0, 1, 2))])))
    assert "3 runs diverged" in page.words


def test_another_version_is_named(tmp_path: Path) -> None:
    page = Page(write(write_study(tmp_path, [Stream(heads=("mean",))], version="0.0.7")))
    assert f"run by lastlayer 0.0.7, this page was made by lastlayer {__version__}" in page.words


def test_what_is_no_study_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no results in"):
        write(tmp_path / "nowhere")
    with sqlite3.connect(tmp_path / "results.sqlite") as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()
    with pytest.raises(FileFormatError, match="another program"):
        write(tmp_path)


def test_results_of_a_later_version_are_refused_in_words(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [])
    with sqlite3.connect(folder / "results.sqlite") as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(FileFormatError, match="a newer lastlayer wrote it"):
        write(folder)


def test_tables_that_are_not_whole_are_refused_in_words(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    shutil.copy(folder / "tables" / "about.csv", tmp_path / "tables")
    with pytest.raises(FileFormatError, match=r"there is no data\.csv"):
        write(tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [Stream(heads=("mean",))])
    (folder / "tables").write_text("a file where a folder should be")
    with pytest.raises(WriteError, match="cannot write the report"):
        write(folder)


def test_a_second_report_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [Stream(heads=("mean",))])
    write(folder)
    (folder / "figures" / "old.svg").touch()
    write(folder)
    assert not (folder / "figures" / "old.svg").exists()


def test_the_report_never_needs_torch() -> None:
    code = "import lastlayer.report, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
