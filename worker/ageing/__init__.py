"""The index's oldest pages go to disk in the background, and the segments there are merged as they grow.

segments    one step of each: retire, merge
keeper      the process that does it while workers run, one at a time on a machine
"""
