"""Data placement and communication: shardings, collectives, bytes on the wire."""
