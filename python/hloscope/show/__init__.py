"""Hosts, one small file each; every one shows the same bytes.

===================  =====================================================
``widget.py``        the notebook output: widget, frame and text at once
``html.py``          one offline page
``magic.py``         ``%hlo``
``text.py``          ``print(capture)``
``dot.py``           DOT and SVG
``cli.py``           the ``hloscope`` command; one file each in commands/
===================  =====================================================
"""
