"""Speed and memory of this project beside its limits and its peers, measured in one run: `python -m benchmarks`.

    cli         which benchmarks run, how large, and where the figures go
    report      a figure, a ratio with what is expected of it, and how both are shown
    machine     what the figures were measured on
    meter       wall time, processor time and percentiles
    samples     pages and made-up index entries to measure with
    loop        pages through Kafka and through files, against fingerprinting alone
    index       check and insert, against an empty script call and against peers
    texts       text and HTML to fingerprint, against peers and limits
    kept        text to kept Parquet, against other packages
    peers       other packages, in a virtual environment of their own

Nothing is typed in: every figure comes from the run that prints it.
"""
