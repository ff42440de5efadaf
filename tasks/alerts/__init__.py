"""Telling people: what a message says, how it is delivered, and when there is something to tell."""
