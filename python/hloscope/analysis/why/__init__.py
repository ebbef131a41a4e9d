"""Why a collective is there: origins, causes, what the compiler said."""
