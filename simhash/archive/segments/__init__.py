"""An archive that grows: sets of tables, each of a stretch of an index's numbers, asked as one, merged as they grow.

contents    what an archive holds at one moment: an immutable file, named by its generation;
            which segments are to be merged
segmented   it, opened to be asked
"""
