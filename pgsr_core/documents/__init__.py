"""What the documents of a bundle say, derived from numbers: by its publisher and by a verifier."""
