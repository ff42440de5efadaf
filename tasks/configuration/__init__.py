"""A product's configuration and the plan that is decided from it."""
