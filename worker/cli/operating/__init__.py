"""The operators' commands on an index, one file each."""
