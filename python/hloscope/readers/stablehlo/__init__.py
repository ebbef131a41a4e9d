"""StableHLO text, bytecode and portable artifacts."""
