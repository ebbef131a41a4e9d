"""What each compiler pass did to a module."""
