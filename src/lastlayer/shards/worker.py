"""A process that does tasks for another on the same machine: one in each line of its input."""

import json
import os
import sys
from typing import IO

from lastlayer.shards.work import do


def serve(asked: IO[str], answers: IO[str]) -> None:
    """Do tasks until there are no more: who asked has all answers, or was killed."""
    for line in asked:
        answers.write(json.dumps(do(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    # What a library prints must not be taken for an answer.
    private = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, private)
