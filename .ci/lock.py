"""Write locked.txt: what constraints.txt pins, all but PyTorch, with the hashes that PyPI has.

python .ci/lock.py < constraints.txt > locked.txt
"""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

HEADER = """\
# What make installs, with hashes: as constraints.txt, all but PyTorch, which has several builds of
# one version (SECURITY.md). After a change of constraints.txt, make it again:
#   python .ci/lock.py < constraints.txt > locked.txt
"""
RARE = re.compile(
    "musllinux|armv7l|i686|ppc64le|s390x|riscv64|loongarch|win32|win_arm64|android|ios|wasm|emscripten"
)
PYTHONS = {"cp311", "cp312", "cp313", "cp314"}
SIMPLE = "application/vnd.pypi.simple.v1+json"


def wanted(file: str) -> bool:
    """Tell whether a file may be installed where make runs; sources always may."""
    if not file.endswith(".whl"):
        return True
    python, abi, platform = file.removesuffix(".whl").split("-")[-3:]
    if RARE.search(platform) or abi.endswith("t"):
        return False
    return abi == "abi3" or "py3" in python.split(".") or bool(PYTHONS & {*python.split(".")})


def files_of(name: str, version: str) -> Iterator[tuple[str, str]]:
    """Give the files of a version that PyPI has, with their hashes."""
    from pip._internal.models.index import PyPI  # noqa: PLC0415  (where pip itself looks)

    request = Request(f"{PyPI.simple_url}/{name}/", headers={"Accept": SIMPLE})
    with urlopen(request) as page:
        text, kind = page.read().decode(), page.headers.get_content_type()
    listed = json.loads(text)["files"] if kind.endswith("json") else links(text)
    start = re.compile(
        f"{re.sub('[-_.]+', '[-_.]+', name)}-{re.escape(version)}(-|\\.tar|\\.zip)", re.I
    )
    for entry in listed:
        if start.match(entry["filename"]):
            yield entry["filename"], entry["hashes"]["sha256"]


def links(page: str) -> list[dict[str, Any]]:
    """Read a page of links, which mirrors give in place of JSON, as if it were that."""
    found = re.findall(r'href="[^"]*/([^/"#]+)#sha256=([0-9a-f]{64})"', page)
    return [{"filename": file, "hashes": {"sha256": digest}} for file, digest in found]


def entry(name: str, version: str, files: Iterator[tuple[str, str]]) -> str:
    """Write one requirement with the hashes of its files."""
    hashes = sorted({digest for file, digest in files if wanted(file)})
    return " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{h}" for h in hashes)])


def pins(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Give the names and versions of a constraints file, but for PyTorch."""
    for line in lines:
        name, equal, version = line.strip().partition("==")
        if equal and not line.startswith("#") and name != "torch":
            yield name, version


if __name__ == "__main__":
    print(HEADER + "\n".join(entry(*pin, files_of(*pin)) for pin in pins(sys.stdin)))
