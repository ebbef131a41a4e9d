"""Notebooks: the widget, the ``%hlo`` magic and hosts that display in their own way."""
