"""The `pgsr` command line."""
