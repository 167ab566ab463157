"""ENTP, encoder-only next token prediction: models, tasks, training, and the records behind every figure.

Import the submodules you need; importing the package itself costs nothing, changes nothing of the process and never
pulls in Jupyter.
"""

__version__ = "0.1.0"
