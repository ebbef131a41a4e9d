"""Operations and Python calls that instructions come from."""
