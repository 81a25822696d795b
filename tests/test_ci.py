"""What runs elsewhere names what is here: the workflow, the commit hooks and .ci/run."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
RUN = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_command_is_a_target_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    steps = re.findall(r"^make (\S+)", RUN, flags=re.MULTILINE)
    assert steps[0] == "test"  # what is wrong shows soon
    assert {"test-all", "test-images", "test-extras", "study", "docs"} <= set(steps)
    for step in steps:
        assert re.search(rf"^{step}\b[^=\n]*:", makefile, flags=re.MULTILINE), step


def test_the_workflow_takes_the_steps_of_the_run() -> None:
    taken = re.findall(r"- run: (.+)", WORKFLOW)
    assert taken[-1] == ".ci/run"
    assert set(taken[:-1]) <= {line.partition(" #")[0] for line in RUN.splitlines()}


def test_the_workflow_has_every_python_that_the_package_claims() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    claimed = re.findall(r"Python :: (3\.\d+)", project)
    (matrix,) = re.findall(r"python: \[(.+)\]", WORKFLOW)
    assert re.findall(r"3\.\d+", matrix) == claimed


def test_the_hooks_lint_with_the_pinned_ruff() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    (pin,) = re.findall(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(), flags=re.M)
    assert re.search(rf"ruff-pre-commit\n\s+rev: v{re.escape(pin)}\n", hooks)
