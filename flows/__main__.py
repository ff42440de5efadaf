"""`python -m flows` is the `pgsr` command, for where its script is not on the path."""

from flows.cli import main

main()
