"""The README's service: its commands as they stand there."""

import json
import re
from pathlib import Path

import lastlayer as ll
from conftest import ROOT, running


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^lastlayer serve (\S+) --store (\S+) --port \d+$", text, re.MULTILINE)
    asked = re.findall(r"^curl --json '(.*?)' localhost:8000(/\w+) ", text, re.MULTILINE)
    data = ll.load_features("cifar10")
    ll.fit(data, "mean").save(tmp_path / command[0])
    with running(tmp_path / command[0], "--store", tmp_path / command[1]) as service:
        said = []
        for body, path in asked:
            row = json.dumps(data.test.z[0].tolist())
            status, answer = service.ask(path, json.loads(body.replace("[0.1, …]", row)))
            assert status == 200, answer
            said.append(answer)
    assert [path for _, path in asked] == ["/predict", "/learn"]
    assert set(said[0]) >= {"labels", "probabilities"}
    assert said[1]["rows"] == 1
