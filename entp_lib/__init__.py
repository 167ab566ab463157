"""ENTP, encoder-only next token prediction: models, tasks, training, and the records behind every figure.

Import the submodules you need; importing the package itself costs nothing and never pulls in Jupyter. It asks for
portable arithmetic (``entp_lib.arithmetic``), which counts where neither torch nor NumPy is imported before it.
"""

from entp_lib import arithmetic

__version__ = "0.1.0"
arithmetic.choose()
