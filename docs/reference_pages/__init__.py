"""Pages of the documentation that are written from the program when the site is built.

- ``api.py``: The API pages: one a package, a section a module
- ``configuration.py``: The configuration reference: groups, presets, and every setting with type, default and meaning
- ``docstrings.py``: Docstrings as the pages need them
- ``markdown.py``: Tables, code and text in Markdown
- ``packages.py``: The packages and modules of ngrpo, read without importing them
- ``papers.py``: The paper index
- ``presets.py``: The files of conf/ as Hydra composes them within their group
- ``settings.py``: The settings of a file of conf/, with type and meaning
- ``yaml_comments.py``: The comments of conf/'s files
"""
