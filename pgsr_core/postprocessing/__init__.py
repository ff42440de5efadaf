"""Post-processing steps: from noisy measurements to publishable tables."""
