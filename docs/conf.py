"""Sphinx: `make docs` builds docs/_build/html, and any warning fails it."""

project = "mimex"
author = "The mimex maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
html_theme = "furo"
html_title = "mimex"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
