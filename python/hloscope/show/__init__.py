"""Hosts, one small file each; all of them show the same bytes.

===================  =====================================================
``widget.py``        the notebook output: widget, frame and text at once
``html.py``          one offline page
``magic.py``         ``%hlo``
``text.py``          ``print(capture)``
``dot.py``           DOT and SVG
``cli.py``           the ``hloscope`` command; one file each in commands/
===================  =====================================================
"""
