"""The mathematics of the product: no files, databases, clocks or global random state."""
