"""Great Expectations suites over public-safe tables, and the runner that judges them."""
