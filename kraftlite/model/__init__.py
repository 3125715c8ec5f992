"""The vocabulary: ids, units, errors, limits and the messages that nodes exchange. Imports nothing of ours."""
