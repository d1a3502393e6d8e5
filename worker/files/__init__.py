"""The judgement of the stream over files, with nothing to start."""
