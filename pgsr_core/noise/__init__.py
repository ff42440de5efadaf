"""Noise samplers behind one Protocol."""
