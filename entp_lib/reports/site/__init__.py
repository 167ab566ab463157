"""The site: the committed notebooks and generated pages as HTML that reads without a network.

``sources`` lays out what Sphinx reads, ``build`` runs it and looks at what came out, ``checks`` finds broken links. The
packages of the extra ``site`` are needed by ``build`` alone.
"""
