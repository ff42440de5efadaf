"""Where a run keeps its files: zones and the two DuckDB stores."""
