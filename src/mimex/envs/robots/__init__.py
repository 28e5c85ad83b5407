"""The robots: for each, an MJCF file and the names in it that tasks use."""
