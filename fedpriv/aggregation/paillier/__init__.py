"""Arithmetic of sums whose weights nobody but their owner learns, under Paillier's cryptosystem.

The modules here import gmpy2 and phe, so import them late, after `extra.require_extra()`.
"""
