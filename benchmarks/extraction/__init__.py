"""Extractors beside each other, in quality and in cost: `python -m benchmarks.extraction`.

Every extractor of this project and every peer goes over the same pages, in turns, in one run:

    labelled   pages whose main text somebody has marked (--labelled): precision, recall, F1, pages/s
    framed     the same article in four made-up sites and four other forms: is it recognised, and no other for it
    signed     a page's bytes to its signature, on the worker's own path, beside a bare parse of the same bytes

`python -m benchmarks.hostile` is the same against pages that were made to be slow.
"""
