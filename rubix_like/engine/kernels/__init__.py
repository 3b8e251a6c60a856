"""Deposit kernels: ways to add what particles give to rows of sums, and the sums over all particles made by them."""
