"""An archive that grows: sets of tables, each of a stretch of an index's numbers, asked as one, merged as they grow.

contents    what an archive holds at one moment: an immutable file, named by its generation
segmented   it, opened to be asked
numbered    its records in the order of their numbers
levels      which segments are to be merged
"""
