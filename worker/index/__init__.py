"""The index that the settings name, and where it runs."""
