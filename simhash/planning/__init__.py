"""What an index would be like before there is one: memory, candidates, pairs found. Arithmetic only; no server."""
