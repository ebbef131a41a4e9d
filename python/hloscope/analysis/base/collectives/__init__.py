"""Which instructions are one logical collective: async pairs, rings of permutes, halo exchanges."""
