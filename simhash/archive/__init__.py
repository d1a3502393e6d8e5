"""Sorted tables of fingerprints on disk, compressed: built from any number of pages, mapped, and asked like an index.

format/     what lies on disk: keys, blocks, container, durable; table_file, record_file, manifest
building/   how it is made: ingest, sorting, builder; merging, from directories to another
lookup/     how it is asked: ranges (many queries in one pass over a table), opened (a whole directory)
verify      everything in it, checked
"""

from simhash.archive.building.builder import BuildPlan, Effort, build
from simhash.archive.building.ingest import EntrySource, Holding, Portion
from simhash.archive.format.manifest import Manifest
from simhash.archive.lookup.opened import TableSet
from simhash.archive.lookup.ranges import KeyPairs

__all__ = ["BuildPlan", "Effort", "EntrySource", "Holding", "KeyPairs", "Manifest", "Portion", "TableSet", "build"]
