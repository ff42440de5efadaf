"""Counts over regions × attributes that add up in every direction: the numerical core."""
