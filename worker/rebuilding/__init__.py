"""An index made afresh from the verdicts that were told: where they come from, in which order they are stored."""
