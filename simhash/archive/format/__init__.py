"""What lies on disk: keys in compressed blocks, tables, records, and the manifest of a directory."""
