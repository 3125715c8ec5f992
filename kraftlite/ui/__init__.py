"""The page on which a failover is watched: what every node says, why it happened, and a button for each fault."""
