"""The flows, one screen each, and the command line that starts them."""
