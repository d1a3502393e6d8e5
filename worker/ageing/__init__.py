"""The index's oldest pages go to disk in the background, and the segments there are merged as they grow.

segments    one step of each: retire, merge
alone       one program at a time on a machine
keeper      the process that does it while workers run
"""
