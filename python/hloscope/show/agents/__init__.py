"""What coding agents ask: a server of the Model Context Protocol over captures."""
