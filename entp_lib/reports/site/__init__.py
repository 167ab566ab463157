"""The site: the committed notebooks and generated pages as HTML that reads without a network.

``build`` lays out what Sphinx reads, runs it and checks what came out; ``pages`` writes the pages.
The packages of the extra ``site`` are needed by ``build`` alone.
"""
