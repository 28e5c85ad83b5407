"""Browser viewer of MuJoCo scenes, based on viser."""
