"""Programs captured again with changes that a person might make to their source."""
