"""One process of the fuzz suite: it says each try before it begins, and what came of it after."""

import contextlib
import json
import os
import random
import resource
import shutil
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from tests.fuzz import calls, kinds
from tests.fuzz.mutate import mutate

import lastlayer as ll
from lastlayer.errors import LastLayerError

MEMORY = 2 << 30  # bytes that a try may take beyond what the program itself needs


def limit_memory() -> None:
    """Let this process have so much more address space than it has now: the limit of one try."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, most))


def judge(error: BaseException, lenient: bool = False) -> str:
    """Name what came of a try that raised."""
    if isinstance(error, LastLayerError):
        return "refused"
    if isinstance(error, TypeError):
        return "TypeError"
    if lenient and isinstance(error, ValueError | calls.OwnError):
        return "refused"  # scikit-learn's own checks, which its conventions ask for
    return "fault"


def where(error: BaseException) -> str:
    """Name the last place in lastlayer that an error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "lastlayer" in frame.filename] or frames
    last = ours[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def try_file(name: str, random_: random.Random) -> dict[str, Any]:
    """Damage a file of one kind, and read it."""
    kind = kinds.KINDS[name]
    source = Path("examples") / kind.example
    path = Path(f"damaged{source.suffix}")
    path.write_bytes(mutate(source.read_bytes(), random_))
    if kind.command and random_.random() < 0.1:
        if name == "results":
            with contextlib.suppress(Exception):
                kind.read(path)  # puts it where results lie
        kinds.check_command(*(str(path) if word == "FILE" else word for word in kind.command))
        return {"outcome": "ended in one line"}
    loaded = kind.read(path)
    if kind.trusted is not None:
        good = Path(f"good{source.suffix}")
        shutil.copy(source, good)
        if kind.trusted(loaded) != kind.trusted(kind.read(good)):
            raise kinds.Altered("content differs from what was written, and was read all the same")
    return {"outcome": "read"}


def try_call(name: str, random_: random.Random) -> dict[str, Any]:
    """Call a public name, or a verb of a head, with arguments that nobody means."""
    if not name.startswith("head "):
        words, action = calls.call(calls.targets()[name], random_, random_.choice((0.3, 1.0)))
        return _act(words, action, lenient="HeadClassifier" in name)
    head = dict(calls.heads())[name.removeprefix("head ")]()
    verb = random_.choice([v for v in calls.VERBS if hasattr(head, v)])
    words, action = calls.call(getattr(head, verb), random_, random_.choice((0.3, 1.0)))
    before = calls.snapshot(head)
    result = _act(f"{verb}({words})", action)
    if result["outcome"] != "read" and not calls.same(head, before):
        return {"outcome": "fault", "error": "the head is not as it was before", "words": words}
    return result


def _act(words: str, action: Any, lenient: bool = False) -> dict[str, Any]:
    try:
        action()
    except Exception as error:
        outcome = judge(error, lenient)
        said = f"{type(error).__name__}: {str(error)[:150]}"
        return {"outcome": outcome, "error": said, "where": where(error), "words": words}
    return {"outcome": "read", "words": words}


def attempt(group: str, name: str, seed: str) -> dict[str, Any]:
    """Make one try, and say what came of it, whatever that is."""
    random_ = random.Random(seed)
    try:
        result = (try_file if group == "files" else try_call)(name, random_)
    except BaseException as error:  # a fault is what is looked for, of whatever kind
        if isinstance(error, KeyboardInterrupt):
            raise
        said = f"{type(error).__name__}: {str(error)[:300]}"
        result = {"outcome": judge(error), "error": said, "where": where(error)}
    return result


def main() -> None:
    """Make the tries that come as lines on stdin."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open("said.txt", os.O_WRONLY | os.O_CREAT), 1)  # what the program prints
    kinds.KINDS["features"].read(Path("examples/features.safetensors"))
    calls.targets()
    for head in (ll.heads.RandomRidgeHead, ll.heads.RandomSldaHead):  # narrow, to be fast
        cast(Any, head.__init__).__kwdefaults__["width"] = 50
    for line in sys.stdin:
        limit_memory()
        group, name, seed = json.loads(line)
        print(json.dumps(attempt(group, name, seed)), file=out, flush=True)


if __name__ == "__main__":
    main()
