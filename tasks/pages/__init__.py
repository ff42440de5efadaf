"""What every page for people is made of: one style, one look of charts, packed numbers."""
