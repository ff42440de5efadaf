"""After publication: withdrawing a release, replacing it, and computing one anew."""
