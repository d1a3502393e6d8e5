"""From records to verdicts: pages signed in child processes, the index asked."""
