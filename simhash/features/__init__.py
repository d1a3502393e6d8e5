"""From text to features: tokens, the ways that the literature takes features of them, their hashes."""
