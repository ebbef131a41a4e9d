"""What surrounds a module: files, folders, archives, compression, encodings."""
