"""How a directory of tables is asked."""
