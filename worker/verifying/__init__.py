"""A checker from outside: the guarantees, held against what was told, by code that has no part in the telling.

Nothing here imports what judges, stores or writes verdicts (`tests/redis/test_verify.py` holds that): JSON, distances,
tables and bands are read and counted once more, in this folder's own way. What is shared is plumbing: settings, errors,
decompression, the reading of a topic.

    told.py             one verdict, dead letter, takedown or row of an export, out of its bytes
    verdict_columns.py  all of them as NumPy columns, 210 bytes a verdict
    sources.py          where they come from: topics or files
    rules.py            what matches: k, reach and so on, as plain data
    table_masks.py      permutation tables as masks
    answered.py         one answer for each record; each number once
    matches.py          what each duplicate says of its match, and of its URL's last version
    missed.py           the pairs that must not have been missed, by sorting
    forgetting.py       what retention and takedowns excuse
    held.py             the index against what was told
    findings.py         what was found
"""
