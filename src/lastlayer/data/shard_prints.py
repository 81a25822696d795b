"""Fingerprints of shards: what a head keeps of those that it has learned, to know them again.

A fingerprint is made of a file's size and of samples of its bytes, not of its name or time: a shard
that was moved, or copied to another machine, is known again.
"""

import os
from hashlib import blake2b
from pathlib import Path

from lastlayer.core.files import reading
from lastlayer.data.shard_list import Shard

SAMPLES, SAMPLE = 16, 1 << 12  # how many of how many bytes: a smaller file is read whole


def print_of(shard: Shard, rows: str) -> str:
    """Return the fingerprint of a shard; ``rows`` is the split that is meant, "" if it has one."""
    found = blake2b(digest_size=8)
    for path in filter(None, (shard.path, shard.labels)):
        with reading(Path(path), "a shard"), open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            found.update(size.to_bytes(8, "little"))
            # The first and the last are at the ends.
            for place in range(SAMPLES):
                file.seek(max(size - SAMPLE, 0) * place // (SAMPLES - 1))
                found.update(file.read(SAMPLE))
    return f"{found.hexdigest()} {rows}".rstrip()
