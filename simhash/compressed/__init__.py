"""Sorted tables of fingerprints on disk, compressed: built from any number of pages, mapped, and asked like an index.

keys        arrays of keys: permuted, sorted, searched, compared
huffman     codes of bounded length
blocks      ascending keys to blocks of bits and back
container   the file: header, index, checked blocks
tables      a sorted table in such a file
records     the side file: whose fingerprints they are
manifest    what a directory of them holds
sorting     sorted runs and their merge
ingest      what comes in, cut into chunks on disk
build       from a source to a directory
merging     from directories to another, without what has expired
probing     many queries in one pass over a table
reading     a directory, opened to be asked
verifying   everything in it, checked
"""

from simhash.compressed.build import Effort, Plan, build
from simhash.compressed.ingest import Batch, Holding, Source
from simhash.compressed.manifest import Manifest
from simhash.compressed.probing import Pairs
from simhash.compressed.reading import TableSet

__all__ = ["Batch", "Effort", "Holding", "Manifest", "Pairs", "Plan", "Source", "TableSet", "build"]
