"""A MuJoCo scene in the browser, drawn by viser."""
