"""Building a bundle and moving it into the public folder."""
