"""Collections that remember what they were: reads at an earlier epoch, and reverts to it, at the cost of what changed."""
