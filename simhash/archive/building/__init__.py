"""How a directory of tables is made: taken in, sorted, merged, encoded."""
