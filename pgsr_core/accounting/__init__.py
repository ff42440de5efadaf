"""What all releases of one population cost together, more tightly than by adding up."""
