"""The tree of groups the explorer opens with: scopes, functions, folds."""
