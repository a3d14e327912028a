"""Cryptographic primitives, one a file, with typed keys. Nothing here knows a protocol."""
