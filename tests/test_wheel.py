"""The wheel holds all that the package needs: it works where there is no clone."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from test_readme import blocks

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that sees nothing of the clone, and give what it wrote."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_to(source: Path) -> None:
    """Copy what packages are built from."""
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, source)
    shutil.copy(ROOT / "CITATION.cff", source)
    leave_out = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=leave_out)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a bare copy: a build folder left in the clone could hide what is missing."""
    source = tmp_path_factory.mktemp("source")
    copy_to(source)
    pip_wheel = ("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index")
    run(sys.executable, *pip_wheel, ".", "-w", "dist", cwd=source)
    (built,) = (source / "dist").glob("lastlayer-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the wheel in it, which borrows the dependencies installed here.

    The borrowing comes last and by path, so that pip finds the environment empty and an editable
    lastlayer among the dependencies stays out of sight.
    """
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=home)
    python = home / "venv" / "bin" / "python"
    pip_install = ("-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index")
    run(sys.executable, *pip_install, wheel, cwd=home)
    (site,) = (home / "venv").glob("lib/*/site-packages")
    paths = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "borrowed.pth").write_text("\n".join(paths) + "\n")
    return python


def test_nothing_is_left_out_of_the_wheel(wheel: Path) -> None:
    package = ROOT / "src" / "lastlayer"
    ours = {
        f"lastlayer/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("lastlayer/")}
    assert packed == ours


def test_a_wheel_of_the_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    copy_to(tmp_path)
    (tmp_path / "tests").mkdir()
    shutil.copy(__file__, tmp_path / "tests")
    made = "from setuptools.build_meta import build_sdist; build_sdist('dist')"
    run(sys.executable, "-c", made, cwd=tmp_path)
    (archive,) = (tmp_path / "dist").glob("lastlayer-*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    top = {path.name for path in source.iterdir()}
    assert {"src", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"} <= top
    assert "tests" not in top
    made = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    run(sys.executable, "-c", made, cwd=source)
    (again,) = (source / "dist").glob("lastlayer-*.whl")
    names = [sorted(zipfile.ZipFile(one).namelist()) for one in (wheel, again)]
    assert names[0] == names[1]


def test_the_installed_package_is_not_the_clone(environment: Path) -> None:
    where = run(
        environment, "-c", "import lastlayer; print(lastlayer.__file__)", cwd=environment.parent
    )
    assert Path(where.strip()).is_relative_to(environment.parents[1])


def test_the_command_lists_what_there_is(environment: Path) -> None:
    listed = run(environment.with_name("lastlayer"), "list", cwd=environment.parent)
    for name in ("slda", "cifar100_lifelong", "cifar10"):
        assert name in listed


def test_bundled_features_load(environment: Path) -> None:
    code = "import lastlayer as ll; print(ll.load_features('cifar10').train.y.shape[0])"
    assert int(run(environment, "-c", code, cwd=environment.parent)) > 0


def test_it_answers_a_question_about_the_bundled_data(environment: Path, tmp_path: Path) -> None:
    """As `make wheel-check` asks it, in an empty folder."""
    asked = ("advise", "cifar10", "--scenario", "cifar10", "--heads", "mean,slda")
    said = run(environment.with_name("lastlayer"), *asked, cwd=tmp_path)
    assert "Use slda: it gets 66." in " ".join(said.split())
    assert not list(tmp_path.iterdir())


def test_the_readme_runs_as_written(environment: Path, tmp_path: Path) -> None:
    """Its commands and its Python, one after the other, with a newcomer's tables."""
    random = np.random.default_rng(0)
    species = np.array(["emu", "ibis", "kiwi", "owl"])[np.arange(200) % 4]
    z = 3 * np.eye(6)[np.arange(200) % 4] + random.normal(size=(200, 6))
    birds = pd.DataFrame({**{f"z_{i}": z[:, i] for i in range(6)}, "species": species})
    old, new = birds[birds.species != "owl"], birds[birds.species == "owl"]
    old.to_csv(tmp_path / "birds.csv", index=False)
    old[:9].to_csv(tmp_path / "customer.csv", index=False)
    new.to_parquet(tmp_path / "week.parquet")
    birds.drop(columns="species").to_csv(tmp_path / "new.csv", index=False)
    shell = [line for block in blocks("sh") for line in block.splitlines()]
    told = [line.partition("#")[0].split() for line in shell if line.startswith("lastlayer ")]
    apart = ("advise", "serve")  # see above; tests_serve
    asked = [words for words in told if words[1] not in apart]
    life = ["fit", "predict", "watch", "audit"]
    assert [words[1] for words in asked] == [*life, "import", "fit", "fit", "predict", "forget"]
    for words in asked:
        run(environment.with_name("lastlayer"), *words[1:], cwd=tmp_path)
    labels = pd.read_csv(tmp_path / "birds-labels.csv")["label"]
    assert (labels == species).mean() > 0.9
    (code,) = blocks("python")
    assert float(run(environment, "-c", code, cwd=tmp_path).strip().rstrip("%")) > 70
