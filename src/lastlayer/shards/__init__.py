"""Features in many files: listed, read some rows at a time, learned part by part, and merged.

A head that merges is a sum: what is learned of some shards can be added to what is learned of
others, exactly, whoever did it. ``listing`` finds the shards, ``reading`` reads one, ``survey``
learns their classes, ``plan`` decides who learns what and under which name, ``work`` does it, here,
in threads (``local``) or on a Ray cluster, and ``fit`` puts it together.
"""
