"""The robots: an MJCF file each, and the names in it that tasks ask for."""
