"""Paillier's cryptosystem: keys, numbers modulo n^2 as pairs, fresh n-th residues.

The modules import gmpy2 and phe: import them late, after `require_extra()`.
"""
