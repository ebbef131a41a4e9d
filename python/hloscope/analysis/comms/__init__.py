"""Who holds what and who talks to whom: shardings, collectives, bytes on the wire."""
