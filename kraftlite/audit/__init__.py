"""Whether all replicas of a cluster hold what they must: checks of segment files, of replicas against each other, and of a history against the log."""
