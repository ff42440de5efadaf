"""Attacks on the privacy claim: statistical tests, and the planted bugs that they must catch."""
