"""Signed statements: Ed25519 keys, DSSE envelopes, in-toto statements; bytes in, bytes out."""
