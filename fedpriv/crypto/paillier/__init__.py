"""Paillier's cryptosystem: keys, numbers modulo n^2 as pairs, fresh n-th residues.

The modules here import gmpy2 and phe, so import them late, after `extra.require_extra()`.
"""
