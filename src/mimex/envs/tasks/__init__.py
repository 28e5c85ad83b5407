"""The tasks of PixMC-Sparse, each written once for all robots."""
