"""From a page's bytes to its main text: charset, what the markup would cost, extraction."""
