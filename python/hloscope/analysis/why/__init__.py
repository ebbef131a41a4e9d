"""Why a collective exists: origins, causes, compiler messages."""
