"""Any number of programs beside each other."""
